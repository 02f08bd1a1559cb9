"""The order of the queue (priority, then rank, then id), and moves of jobs in it."""

from __future__ import annotations

from typing import NamedTuple

from stoker.store.database import Database

GAP = 1 << 16
_WINDOW = 64
_LEAST_STEP = 1 << 8  # eight more jobs can be put between any two before they are spread again
_PLACES = "SELECT id, priority, rank FROM job WHERE state = 'waiting' AND id != ?1"
_IN_ORDER = " ORDER BY priority DESC, rank, id"
_FROM_THE_END = " ORDER BY priority, rank DESC, id DESC"
_AHEAD = (
    "SELECT count(*) FROM (SELECT 1 FROM job WHERE state = 'waiting'"
    " AND (priority > ?1 OR (priority = ?1 AND (rank, id) < (?2, ?3))) LIMIT ?4)"
)


class QueuePosition(NamedTuple):
    """The position of a waiting job."""

    job: int
    priority: int
    rank: int


def neighbours(
    database: Database, job: int, position: int, others: int
) -> tuple[QueuePosition | None, QueuePosition | None]:
    """Return the neighbours that a job would have at a position, from 1, among so many other jobs."""
    ahead = min(position - 1, others)
    if ahead <= others // 2:
        found = _read(database, f"{_PLACES}{_IN_ORDER}", job, max(0, ahead - 1))
        return (None, found[0]) if ahead == 0 and found else _pair(found)
    # The end is nearer: count from there.
    behind = others - ahead
    found = _read(database, f"{_PLACES}{_FROM_THE_END}", job, max(0, behind - 1))
    return (found[0], None) if behind == 0 and found else _pair(found[::-1])


def _read(database: Database, sql: str, job: int, offset: int) -> list[QueuePosition]:
    return [
        QueuePosition(*row) for row in database.execute(f"{sql} LIMIT 2 OFFSET ?2", (job, offset))
    ]


def _pair(found: list[QueuePosition]) -> tuple[QueuePosition | None, QueuePosition | None]:
    first, second = (*found, None, None)[:2]
    return first, second


def rank_between(
    database: Database,
    job: int,
    before: QueuePosition | None,
    behind: QueuePosition | None,
    priority: int,
) -> int:
    """Return a rank between two jobs; one of another priority does not count."""
    low = before.rank if before is not None and before.priority == priority else None
    high = behind.rank if behind is not None and behind.priority == priority else None
    if low is None:
        return job << 16 if high is None else high - GAP
    if high is None:
        return low + GAP
    if high - low < 2:
        assert before is not None
        high = low + 2 * _make_room(database, job, before)
    return (low + high) // 2


def _make_room(database: Database, job: int, before: QueuePosition) -> int:
    """Spread the ranks of the jobs behind a position evenly, of as few jobs as possible.

    The first of them gets a rank two steps behind the position. Returns the size of a step.
    """
    size = _WINDOW
    while True:
        sql = f"{_PLACES} AND priority = ?2 AND (rank, id) > (?3, ?4) ORDER BY rank, id LIMIT ?5"
        values = (job, before.priority, before.rank, before.job, size + 1)
        places = [QueuePosition(*row) for row in database.execute(sql, values)]
        if len(places) <= size:  # up to the end of the queue, where ranks are free
            step = GAP
            break
        step = (places.pop().rank - before.rank) // (size + 2)
        if step >= _LEAST_STEP:
            break
        size *= 4
    for number, place in enumerate(places, 2):
        rank = before.rank + step * number
        database.write("UPDATE job SET rank = ? WHERE id = ?", (rank, place.job))
    return step


def place_of(database: Database, job: int) -> QueuePosition:
    """Return the position of a job."""
    row = database.execute("SELECT id, priority, rank FROM job WHERE id = ?", (job,)).fetchone()
    return QueuePosition(*row)


def count_ahead(database: Database, place: QueuePosition, limit: int) -> int:
    """Count the waiting jobs before a position, up to a limit."""
    values = (place.priority, place.rank, place.job, limit)
    return int(database.execute(_AHEAD, values).fetchone()[0])
