"""`ls`: pages of jobs, what runs first, then what waits in its order, then what ended last."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from stoker.core.lifecycle import State, is_final, is_live
from stoker.core.node import gpus_in
from stoker.engine.context import QueueContext
from stoker.errors import UsageError
from stoker.service.job_rows import COLUMNS, TABLES, job_of
from stoker.service.job_selection import find
from stoker.wire import MAX_PRIORITY, Job, Page, Selection

_SELECT = f"SELECT {COLUMNS} FROM {TABLES}"  # noqa: S608 - our own columns
# Three questions for what one comparison of three columns would ask: so the index answers each.
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
_SHELVED = f"{_SELECT} WHERE state = ? AND reason IS NOT NULL AND job.id > ? ORDER BY job.id"
_ON_PENDING = (State.HELD, State.BLOCKED, State.DELAYED)
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
# These have a reason always.
_RARE = {*_ON_PENDING, State.SKIPPED, State.FAILED, State.LOST}
_NEVER_US = 2**62
_LOOK_AT = 5000
_NAMED = {"i": 1}
_NUMBERED = {"n": 1}
_ORDERED = {"r": 1, "w": 3, "s": 1, "e": 2}


class _Filter(msgspec.Struct, frozen=True):
    """What a job must be like: its text occurs in its name or at the beginning of its command."""

    states: list[State] = []
    project: str | None = None
    text: str | None = None
    gpu: str | None = None

    def fits(self, row: Any) -> bool:
        """Whether a row of COLUMNS is like that."""
        if self.states and State(row[3]) not in self.states:
            return False
        if self.project is not None and row[2] != self.project:
            return False
        if self.gpu is not None and self.gpu not in gpus_in(row[9] or ""):
            return False
        if self.text is None:
            return True
        wanted = self.text.lower()
        command = row[4].decode("utf-8", "replace").lower()
        return wanted in (row[1] or "").lower() or wanted in command


def ls(
    context: QueueContext,
    selection: Selection,
    *,
    text: str | None,
    gpu: str | None = None,
    sort: str | None = None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of the jobs selected (by default all); `after` is the cursor that the last one gave.

    Where few fit, a page may hold less than its limit, or nothing, and still have a next one: the
    others want to be served too.
    """
    if selection.ids is not None:
        rows = _named(context, selection, _read_cursor(after, _NAMED))
    elif sort == "name":
        rows = _by_name(context, after)
    elif sort is not None:
        rows = _by_id(context, selection.states, sort, _read_cursor(after, _NUMBERED))
    else:
        rows = _in_order(context, selection, _read_cursor(after, _ORDERED))
    wanted = _Filter(selection.states, selection.project, text, gpu)
    jobs: list[Job] = []
    last = after
    for looked_at, (position, row) in enumerate(rows):
        fits = wanted.fits(row)
        if looked_at >= _LOOK_AT or (fits and len(jobs) == limit):
            return Page(jobs=jobs, next=last)
        if fits:
            jobs.append(foretell(context, job_of(row)))
        last = position
    return Page(jobs=jobs)


def foretell(context: QueueContext, job: Job) -> Job:
    """Tell of a job that runs when it may end, and what of a GPU's memory it has and was promised."""
    running = context.running(job.id) if is_live(job.state) else None
    if running is None:
        return job
    left_s = context.eta.left_s(running)
    sharing, look = context.engine.sharing, context.look()
    seat = None if sharing is None else sharing.seat_of(running)
    seen = None if look is None else look.jobs.get(running.key)
    return structs.replace(
        job,
        ends_at=None if left_s is None else time.time() + left_s,
        reserved_bytes=None if seat is None else seat.tenant.reserved_bytes,
        capped=seat is not None and seat.tenant.capped,
        gpu_bytes=max(seen.mem_bytes.values()) if seen is not None and seen.mem_bytes else None,
    )


def _read_cursor(after: str | None, wanted: dict[str, int]) -> tuple[str, list[int]]:
    if after is None:
        return "", []
    kind, _, numbers = after.partition(":")
    try:
        values = [int(part) for part in numbers.split(":")]
    except ValueError:
        values = []
    if len(values) != wanted.get(kind) or any(abs(value) >= 2**63 for value in values):
        raise UsageError(f"{after[:100]!r} is no cursor of such a page")
    return kind, values


def _named(
    context: QueueContext, selection: Selection, cursor: tuple[str, list[int]]
) -> Iterator[tuple[str, Any]]:
    kind, values = cursor
    last = values[0] if kind == "i" else 0
    for job, _state in find(context, selection):
        if job > last:
            yield (
                f"i:{job}",
                context.database.execute(f"{_SELECT} WHERE job.id = ?", (job,)).fetchone(),
            )


def _in_order(
    context: QueueContext, selection: Selection, cursor: tuple[str, list[int]]
) -> Iterator[tuple[str, Any]]:
    kind, values = cursor
    states = selection.states or list(State)
    if kind in ("", "r") and any(map(is_live, states)):
        yield from _running(context, values[0] if kind == "r" else 0)
    if kind in ("", "r", "w") and State.WAITING in states:
        yield from _waiting(context, selection.project, values if kind == "w" else [])
    if kind != "e":
        yield from _shelved(context, states, values[0] if kind == "s" else 0)
    if any(map(is_final, states)):
        newest = [_NEVER_US, 0]
        yield from _ended(context, selection.project, values if kind == "e" else newest, states)


def _running(context: QueueContext, after: int) -> Iterator[tuple[str, Any]]:
    if context.engine.recorder.is_held_up:  # the last turn is not on record: show what is
        jobs = {facts.id for facts in context.jobs.live_facts()}
    else:
        jobs = {running.attempt.job for running in context.engine.slot_table.running.values()}
    for job in sorted(jobs):
        if job > after:
            row = context.database.execute(f"{_SELECT} WHERE job.id = ?", (job,)).fetchone()
            if row is not None:
                yield f"r:{job}", row


def _waiting(
    context: QueueContext, project: str | None, after: list[int]
) -> Iterator[tuple[str, Any]]:
    """What waits, merged from its classes; no further read than it is wanted."""
    parts = [_waiting_in_class(context, number, after) for number in _classes(context, project)]
    for row in heapq.merge(*parts, key=lambda row: (-row[7], row[15], row[0])):
        yield f"w:{row[7]}:{row[15]}:{row[0]}", row


def _waiting_in_class(context: QueueContext, number: int, after: list[int]) -> Iterator[Any]:
    execute = context.database.execute
    priority, rank, job = after or (MAX_PRIORITY + 1, 0, 0)
    if after:
        yield from execute(_SAME_RANK, (number, priority, rank, job))
        yield from execute(_SAME_PRIORITY, (number, priority, rank))
    yield from execute(_LOWER_PRIORITIES, (number, priority))


def _shelved(context: QueueContext, states: list[State], after: int) -> Iterator[tuple[str, Any]]:
    found = [
        context.database.execute(_SHELVED, (state.value, after))
        for state in _ON_PENDING
        if state in states
    ]
    for row in heapq.merge(*found, key=lambda row: row[0]):
        yield f"s:{row[0]}", row


def _ended(
    context: QueueContext, project: str | None, after: list[int], states: list[State]
) -> Iterator[tuple[str, Any]]:
    ours = ""
    if project is not None:
        ours = f" AND class IN ({', '.join(map(str, _classes(context, project)))})"
    sql = _ENDED.format(ours)
    if State.DONE not in states:
        names = ", ".join(f"'{state.value}'" for state in states if is_final(state))
        sql = _UNDONE.format(names, ours)
    for row in context.database.execute(sql, after):
        yield f"e:{row[14]}:{row[0]}", row


def _by_id(
    context: QueueContext, states: list[State], sort: str, cursor: tuple[str, list[int]]
) -> Iterator[tuple[str, Any]]:
    """Jobs by their numbers; of states that are rare, found by the index on states."""
    newest = sort == "newest"
    start = cursor[1][0] if cursor[1] else (_NEVER_US if newest else 0)
    sql = _NEWEST if newest else _OLDEST
    if states and _RARE.issuperset(states):
        parts = [
            context.database.execute(
                sql.format("state = ? AND reason IS NOT NULL AND"), (each, start)
            )
            for each in dict.fromkeys(state.value for state in states)
        ]
        rows: Iterator[Any] = heapq.merge(*parts, key=lambda row: row[0], reverse=newest)
    else:
        rows = context.database.execute(sql.format("submission IS NOT NULL AND"), (start,))
    for row in rows:
        yield f"n:{row[0]}", row


def _by_name(context: QueueContext, after: str | None) -> Iterator[tuple[str, Any]]:
    """Jobs by their names, those without one last; `b:12:fit` is the cursor of job 12, named fit."""
    nameless_after = 0
    if after is None or after.startswith("b:"):
        number, _, name = (after or "b:0:")[2:].partition(":")
        job = _read_cursor(f"n:{number}", _NUMBERED)[1][0]
        for row in context.database.execute(_BY_NAME, (name, job)):
            yield f"b:{row[0]}:{row[1]}", row
    else:
        nameless_after = _read_cursor(after, _NUMBERED)[1][0]
    for row in context.database.execute(_NAMELESS, (nameless_after,)):
        yield f"n:{row[0]}", row


def _classes(context: QueueContext, project: str | None) -> list[int]:
    rows = context.database.execute("SELECT id, project FROM class")
    return [number for number, name in rows if project is None or name == project]
