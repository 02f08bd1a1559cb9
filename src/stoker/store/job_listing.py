"""Queries for lists of jobs, in each order that lists can have.

Every function reads lazily from a position on, so that a page costs only the rows that it reads.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import starmap

import msgspec

from stoker.core.lifecycle import State, is_final
from stoker.store.database import Database
from stoker.store.job_queries import RARE_STATES

_SHOWN_BYTES = 1000
# Only the beginning of the command: a page of the longest ones would not fit into memory.
_SELECT = (
    f"SELECT job.id, name, project, state, substr(command, 1, {_SHOWN_BYTES}), form, class.slots,"  # noqa: S608 - ours
    " priority, attempt, job.slots, reason, status, submitted_at_us, started_at_us, ended_at_us, rank,"
    " begin_at_us, submission.cwd, failure, class.place"
    " FROM job JOIN class ON class.id = job.class"
    " LEFT JOIN submission ON submission.id = job.submission"
)
# Three queries instead of one comparison of three columns, because the index can answer each of them.
_SAME_RANK = (
    f"{_SELECT} WHERE class = ? AND state = 'waiting' AND priority = ? AND rank = ? AND job.id > ?"
    " ORDER BY job.id"
)
_SAME_PRIORITY = (
    f"{_SELECT} WHERE class = ? AND state = 'waiting' AND priority = ? AND rank > ?"
    " ORDER BY rank, job.id"
)
_LOWER_PRIORITIES = (
    f"{_SELECT} WHERE class = ? AND state = 'waiting' AND priority < ?"
    " ORDER BY priority DESC, rank, job.id"
)
# All of these have a reason: found by the index on states.
_PENDING = f"{_SELECT} WHERE state = ? AND reason IS NOT NULL AND job.id > ? ORDER BY job.id"
_ENDED = (
    f"{_SELECT} WHERE ended_at_us IS NOT NULL AND submission IS NOT NULL"
    " AND (ended_at_us, job.id) < (?, ?){} ORDER BY ended_at_us DESC, job.id DESC"
)
# Few jobs fail among many that are done: found by the index on states (+ forbids the other one).
_UNDONE = (
    f"{_SELECT} WHERE state IN ({{}}) AND reason IS NOT NULL AND (+ended_at_us, job.id) < (?, ?){{}}"
    " ORDER BY +ended_at_us DESC, job.id DESC"
)
_OLDEST = f"{_SELECT} WHERE {{}} job.id > ? ORDER BY job.id"
_NEWEST = f"{_SELECT} WHERE {{}} job.id < ? ORDER BY job.id DESC"
_BY_NAME = (
    f"{_SELECT} WHERE name IS NOT NULL AND submission IS NOT NULL AND (name, job.id) > (?, ?)"
    " ORDER BY name, job.id"
)
_NAMELESS = (
    f"{_SELECT} WHERE name IS NULL AND submission IS NOT NULL AND job.id > ? ORDER BY job.id"
)


class ListedJob(msgspec.Struct, frozen=True, gc=False):
    """A job with its present or last attempt, and the beginning of its command."""

    id: int
    name: str | None
    project: str | None
    state: str
    command_head: bytes
    form: str | None
    gpus: int
    priority: int
    attempt: int
    slots: str | None
    reason: str | None
    status: int | None
    submitted_at_us: int | None
    started_at_us: int | None
    ended_at_us: int | None
    rank: int
    begin_at_us: int | None
    cwd: bytes | None
    failure: str | None
    where: str | None


def one(database: Database, job: int) -> ListedJob | None:
    """Return one job; None if there is no such job."""
    return next(_read(database, f"{_SELECT} WHERE job.id = ?", (job,)), None)


def waiting(
    database: Database, project: str | None, after: Sequence[int] = ()
) -> Iterator[ListedJob]:
    """Return waiting jobs in queue order, after a priority, rank and id; merges their classes."""
    parts = [_waiting_in_class(database, number, after) for number in _classes(database, project)]
    return heapq.merge(*parts, key=lambda job: (-job.priority, job.rank, job.id))


def _waiting_in_class(database: Database, number: int, after: Sequence[int]) -> Iterator[ListedJob]:
    priority, rank, job = after or (2**62, 0, 0)
    if after:
        yield from _read(database, _SAME_RANK, (number, priority, rank, job))
        yield from _read(database, _SAME_PRIORITY, (number, priority, rank))
    yield from _read(database, _LOWER_PRIORITIES, (number, priority))


def pending(database: Database, states: Sequence[State], after: int) -> Iterator[ListedJob]:
    """Return held, blocked or delayed jobs by id, after an id."""
    found = [_read(database, _PENDING, (state.value, after)) for state in states]
    return heapq.merge(*found, key=_id_of)


def ended(
    database: Database, states: Sequence[State], project: str | None, before: Sequence[int]
) -> Iterator[ListedJob]:
    """Return ended jobs, the last to end first, before a time in microseconds and an id."""
    ours = ""
    if project is not None:
        ours = f" AND class IN ({', '.join(map(str, _classes(database, project)))})"
    if State.DONE in states:
        return _read(database, _ENDED.format(ours), before)
    names = ", ".join(f"'{state.value}'" for state in states if is_final(state))
    return _read(database, _UNDONE.format(names, ours), before)


def by_id(
    database: Database, states: Sequence[State], start: int, *, newest_first: bool
) -> Iterator[ListedJob]:
    """Return jobs by id, after or before an id.

    If all the states are rare, only jobs in them are read; else jobs in any state.
    """
    sql = _NEWEST if newest_first else _OLDEST
    if not states or not RARE_STATES.issuperset(states):
        return _read(database, sql.format("submission IS NOT NULL AND"), (start,))
    rare = sql.format("state = ? AND reason IS NOT NULL AND")
    parts = [_read(database, rare, (state.value, start)) for state in dict.fromkeys(states)]
    return heapq.merge(*parts, key=_id_of, reverse=newest_first)


def by_name(database: Database, name: str, job: int) -> Iterator[ListedJob]:
    """Return jobs with names in the order of these, after a name and an id."""
    return _read(database, _BY_NAME, (name, job))


def nameless(database: Database, after: int) -> Iterator[ListedJob]:
    """Return jobs without names by id, after an id."""
    return _read(database, _NAMELESS, (after,))


def _read(database: Database, sql: str, values: Sequence[object]) -> Iterator[ListedJob]:
    return starmap(ListedJob, database.execute(sql, values))


def _id_of(job: ListedJob) -> int:
    return job.id


def _classes(database: Database, project: str | None) -> list[int]:
    rows = database.execute("SELECT id, project FROM class")
    return [number for number, name in rows if project is None or name == project]
