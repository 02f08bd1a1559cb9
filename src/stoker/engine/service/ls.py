"""`ls`: pages of jobs, what runs first, then what waits in its order, then what ended last."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from stoker.core.lifecycle import State, is_final, is_live
from stoker.engine.hub import Hub
from stoker.engine.service.rows import COLUMNS, TABLES, job_of
from stoker.engine.service.select import find
from stoker.errors import UsageError
from stoker.wire import Job, Page, Selection

_SELECT = f"SELECT {COLUMNS} FROM {TABLES}"  # noqa: S608 - our own columns
_WAITING = (
    f"{_SELECT} WHERE class = ? AND state = 'waiting'"
    " AND (priority < ? OR (priority = ? AND (rank, job.id) > (?, ?)))"
    " ORDER BY priority DESC, rank, job.id"
)
_FIRST_WAITING = (
    f"{_SELECT} WHERE class = ? AND state = 'waiting' ORDER BY priority DESC, rank, job.id"
)
# All of these have a reason: found by the index on states.
_SHELVED = f"{_SELECT} WHERE state = ? AND reason IS NOT NULL AND job.id > ? ORDER BY job.id"
_ON_SHELF = (State.HELD, State.BLOCKED, State.DELAYED)
_ENDED = (
    f"{_SELECT} WHERE ended_at_us IS NOT NULL AND submission IS NOT NULL"
    " AND (ended_at_us, job.id) < (?, ?) ORDER BY ended_at_us DESC, job.id DESC"
)
# Few jobs fail among many that are done: found by the index on states (+ forbids the other one).
_UNDONE = (
    f"{_SELECT} WHERE state IN ({{}}) AND reason IS NOT NULL AND (+ended_at_us, job.id) < (?, ?)"
    " ORDER BY +ended_at_us DESC, job.id DESC"
)
_NEVER_US = 2**62


def ls(hub: Hub, selection: Selection, *, text: str | None, after: str | None, limit: int) -> Page:
    """A page of the jobs selected (by default all); `after` is the cursor that the last one gave."""
    cursor = _read_cursor(after)
    select = _in_order if selection.ids is None else _named
    rows = select(hub, selection, cursor)
    found: list[tuple[str, Job]] = []
    for position, row in rows:
        if _fits(row, selection, text):
            found.append((position, job_of(row)))
            if len(found) > limit:
                break
    page = found[:limit]
    return Page(
        jobs=[job for _position, job in page],
        next=page[-1][0] if len(found) > limit else None,
    )


def _read_cursor(after: str | None) -> tuple[str, list[int]]:
    if after is None:
        return "", []
    kind, _, numbers = after.partition(":")
    parts = numbers.split(":")
    wanted = {"r": 1, "w": 3, "s": 1, "e": 2, "i": 1}
    try:
        values = [int(part) for part in parts]
    except ValueError:
        values = []
    if len(values) != wanted.get(kind) or any(abs(value) >= 2**63 for value in values):
        raise UsageError(f"'{after[:100]}' is no cursor of a page")
    return kind, values


def _named(
    hub: Hub, selection: Selection, cursor: tuple[str, list[int]]
) -> Iterator[tuple[str, Any]]:
    kind, values = cursor
    last = values[0] if kind == "i" else 0
    for job, _state in find(hub, selection):
        if job > last:
            yield f"i:{job}", hub.database.execute(f"{_SELECT} WHERE job.id = ?", (job,)).fetchone()


def _in_order(
    hub: Hub, selection: Selection, cursor: tuple[str, list[int]]
) -> Iterator[tuple[str, Any]]:
    kind, values = cursor
    states = selection.states or list(State)
    if kind in ("", "r") and any(map(is_live, states)):
        yield from _running(hub, values[0] if kind == "r" else 0)
    if kind in ("", "r", "w") and State.WAITING in states:
        yield from _waiting(hub, selection.project, values if kind == "w" else [])
    if kind != "e":
        yield from _shelved(hub, states, values[0] if kind == "s" else 0)
    if any(map(is_final, states)):
        newest = [_NEVER_US, 0]
        yield from _ended(hub, values if kind == "e" else newest, states)


def _running(hub: Hub, after: int) -> Iterator[tuple[str, Any]]:
    jobs = sorted({running.attempt.job for running in hub.engine.board.running.values()})
    for job in jobs:
        if job > after:
            row = hub.database.execute(f"{_SELECT} WHERE job.id = ?", (job,)).fetchone()
            if row is not None:
                yield f"r:{job}", row


def _waiting(hub: Hub, project: str | None, after: list[int]) -> Iterator[tuple[str, Any]]:
    found = []
    for number, name in hub.database.execute("SELECT id, project FROM class").fetchall():
        if project is not None and name != project:
            continue
        if after:
            priority, rank, job = after
            values = (number, priority, priority, rank, job)
            found.append(hub.database.execute(_WAITING, values))
        else:
            found.append(hub.database.execute(_FIRST_WAITING, (number,)))
    for row in heapq.merge(*found, key=lambda row: (-row[7], row[15], row[0])):
        yield f"w:{row[7]}:{row[15]}:{row[0]}", row


def _shelved(hub: Hub, states: list[State], after: int) -> Iterator[tuple[str, Any]]:
    found = [
        hub.database.execute(_SHELVED, (state.value, after))
        for state in _ON_SHELF
        if state in states
    ]
    for row in heapq.merge(*found, key=lambda row: row[0]):
        yield f"s:{row[0]}", row


def _ended(hub: Hub, after: list[int], states: list[State]) -> Iterator[tuple[str, Any]]:
    sql = _ENDED
    if State.DONE not in states:
        sql = _UNDONE.format(", ".join(f"'{state.value}'" for state in states if is_final(state)))
    for row in hub.database.execute(sql, after):
        yield f"e:{row[14]}:{row[0]}", row


def _fits(row: Any, selection: Selection, text: str | None) -> bool:
    if selection.states and State(row[3]) not in selection.states:
        return False
    if selection.project is not None and row[2] != selection.project:
        return False
    if text is None:
        return True
    wanted = text.lower()
    return wanted in (row[1] or "").lower() or wanted in row[4].decode("utf-8", "replace").lower()
