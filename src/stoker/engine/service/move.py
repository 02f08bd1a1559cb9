"""`move`: puts a waiting job at another position of the queue."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.engine.service.each import state_of
from stoker.engine.service.select import find_one
from stoker.errors import ConflictError
from stoker.failpoints import reach
from stoker.store.order import neighbours, rank_between
from stoker.wire import Move, Moved


def move(hub: Hub, order: Move) -> Moved:
    """Put a job at a position, 1 being the next to start; past another priority it takes that over."""
    job = find_one(hub, order.job)
    state = state_of(hub, job)
    if state is not State.WAITING:
        word = "gone" if state is None else state.value
        raise ConflictError(f"job {job} is {word}: only what waits has a position in the queue")
    mine = priority = hub.jobs.facts(job).priority
    waiting = hub.jobs.count(State.WAITING)
    before, behind = neighbours(hub.database, job, order.position, waiting - 1)
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
    position = min(order.position, waiting)
    return Moved(id=job, position=position, notice=None if priority == mine else notice)
