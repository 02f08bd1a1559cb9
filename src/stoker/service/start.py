"""`start`: starts jobs before all others."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_pending
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import change_each
from stoker.service.pending_states import settle
from stoker.wire import Changed, Start


async def start(context: QueueContext, order: Start) -> Changed:
    """Start jobs next, whatever holds, times, dependencies, pauses and limits say, on free GPUs."""
    if order.queue:
        context.driver.poke()
        return Changed(ids=[])

    def change(job: int, state: State) -> str | None:
        if not is_pending(state):
            return f"job {job} is {state.value}: only what has not begun can be started"
        context.pending.hold(job, False)
        context.pending.delay(job, None)
        context.pending.unlink(job)
        settle(context, job)
        context.jobs.force(job)
        return None

    return await change_each(context, order, change, fits=is_pending)
