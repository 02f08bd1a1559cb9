"""The order of the queue: priority, then rank, then id; and how a job comes to another place in it."""

from __future__ import annotations

from typing import NamedTuple

from stoker.store.database import Database

GAP = 1 << 16
_WINDOW = 64
_LEAST_STEP = 1 << 8  # eight more jobs can be put between any two before they are spread again
_PLACES = "SELECT id, priority, rank FROM job WHERE state = 'waiting' AND id != ?1"
_IN_ORDER = " ORDER BY priority DESC, rank, id"
_AHEAD = (
    "SELECT count(*) FROM (SELECT 1 FROM job WHERE state = 'waiting'"
    " AND (priority > ?1 OR (priority = ?1 AND (rank, id) < (?2, ?3))) LIMIT ?4)"
)


class Place(NamedTuple):
    """Where a waiting job stands."""

    job: int
    priority: int
    rank: int


def neighbours(database: Database, job: int, position: int) -> tuple[Place | None, Place | None]:
    """Who would stand before and behind a job at a position (from 1); the last one if it is too far."""
    offset = max(0, position - 2)
    sql = f"{_PLACES}{_IN_ORDER} LIMIT 2 OFFSET ?2"
    rows = [Place(*row) for row in database.execute(sql, (job, offset))]
    if position == 1:
        return None, rows[0] if rows else None
    if not rows:  # beyond the end
        sql = f"{_PLACES} ORDER BY priority, rank DESC, id DESC LIMIT 1"
        last = [Place(*row) for row in database.execute(sql, (job,))]
        return (last[0] if last else None), None
    return rows[0], rows[1] if len(rows) > 1 else None


def rank_between(
    database: Database, job: int, before: Place | None, behind: Place | None, priority: int
) -> int:
    """A rank that puts a job between two others, of which those of another priority do not count."""
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


def _make_room(database: Database, job: int, before: Place) -> int:
    """Spread those behind a place evenly over the ranks up to one that stays, as few as it takes.

    The first of them stands two steps behind the place; returns how far a step is.
    """
    size = _WINDOW
    while True:
        sql = f"{_PLACES} AND priority = ?2 AND (rank, id) > (?3, ?4) ORDER BY rank, id LIMIT ?5"
        values = (job, before.priority, before.rank, before.job, size + 1)
        places = [Place(*row) for row in database.execute(sql, values)]
        if len(places) <= size:  # up to the end, where there is room without end
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


def count_ahead(database: Database, place: Place, limit: int) -> int:
    """How many waiting jobs stand before a place, counted up to a limit."""
    values = (place.priority, place.rank, place.job, limit)
    return int(database.execute(_AHEAD, values).fetchone()[0])
