"""`move`: changes the position of a waiting job in the queue."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError, UsageError
from stoker.failpoints import reach
from stoker.service.job_selection import find_one
from stoker.store.job_queries import state_of
from stoker.store.queue_order import count_ahead, neighbours, place_of, rank_between
from stoker.wire import Move, Moved


def move(context: QueueContext, order: Move) -> Moved:
    """Move a waiting job to a position of the queue; 1 is the next to start.

    A job that passes jobs of another priority gets that priority.
    """
    job = _find_waiting(context, order.job)
    position = _position(context, job, order)
    mine = priority = context.jobs.facts(job).request.priority
    waiting = context.jobs.count(State.WAITING)
    before, behind = neighbours(context.database, job, position, waiting - 1)
    if behind is not None:
        priority = max(priority, behind.priority)
    if before is not None:
        priority = min(priority, before.priority)
    with context.database.transaction(durable=True):
        rank = rank_between(context.database, job, before, behind, priority)
        context.jobs.put_at(job, priority, rank)
    reach("move-committed")
    context.events.touch()
    context.driver.poke()
    notice = f"job {job} has priority {priority} now instead of {mine}, as its neighbours there"
    position = min(position, waiting)
    return Moved(id=job, position=position, notice=None if priority == mine else notice)


def _find_waiting(context: QueueContext, text: str) -> int:
    job = find_one(context, text)
    state = state_of(context.database, job)
    if state is not State.WAITING:
        word = "gone" if state is None else state.value
        raise ConflictError(f"job {job} is {word}: only what waits has a position in the queue")
    return job


def _position(context: QueueContext, job: int, order: Move) -> int:
    """Return the wanted position, counted without the job itself."""
    if order.before is None and order.behind is None:
        return order.position
    if order.before is not None and order.behind is not None:
        raise UsageError("a job can be put before another one or behind it, not both")
    other = _find_waiting(context, order.before or order.behind or "")
    mine, place = place_of(context.database, job), place_of(context.database, other)
    ahead = count_ahead(context.database, place, context.jobs.count(State.WAITING))
    ahead -= (-mine.priority, mine.rank, mine.job) < (-place.priority, place.rank, place.job)
    return ahead + (1 if order.behind is None else 2)
