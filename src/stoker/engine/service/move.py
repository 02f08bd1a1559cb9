"""`move`: puts a waiting job at another position of the queue."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.engine.service.each import state_of
from stoker.engine.service.select import find_one
from stoker.errors import ConflictError, UsageError
from stoker.failpoints import reach
from stoker.store.order import count_ahead, neighbours, place_of, rank_between
from stoker.wire import Move, Moved


def move(hub: Hub, order: Move) -> Moved:
    """Put a job at a position, 1 being the next to start; past another priority it takes that over."""
    job = _find_waiting(hub, order.job)
    position = _position(hub, job, order)
    mine = priority = hub.jobs.facts(job).priority
    waiting = hub.jobs.count(State.WAITING)
    before, behind = neighbours(hub.database, job, position, waiting - 1)
    if behind is not None:
        priority = max(priority, behind.priority)
    if before is not None:
        priority = min(priority, before.priority)
    with hub.database.transaction(durable=True):
        rank = rank_between(hub.database, job, before, behind, priority)
        hub.jobs.put_at(job, priority, rank)
    reach("move-committed")
    hub.events.touch()
    hub.pulse.poke()
    notice = f"job {job} has priority {priority} now instead of {mine}, as its neighbours there"
    position = min(position, waiting)
    return Moved(id=job, position=position, notice=None if priority == mine else notice)


def _find_waiting(hub: Hub, text: str) -> int:
    job = find_one(hub, text)
    state = state_of(hub, job)
    if state is not State.WAITING:
        word = "gone" if state is None else state.value
        raise ConflictError(f"job {job} is {word}: only what waits has a position in the queue")
    return job


def _position(hub: Hub, job: int, order: Move) -> int:
    """The position that is meant, counted without the job itself."""
    if order.before is None and order.behind is None:
        return order.position
    if order.before is not None and order.behind is not None:
        raise UsageError("a job can be put before another one or behind it, not both")
    other = _find_waiting(hub, order.before or order.behind or "")
    mine, place = place_of(hub.database, job), place_of(hub.database, other)
    ahead = count_ahead(hub.database, place, hub.jobs.count(State.WAITING))
    ahead -= (-mine.priority, mine.rank, mine.job) < (-place.priority, place.rank, place.job)
    return ahead + (1 if order.behind is None else 2)
