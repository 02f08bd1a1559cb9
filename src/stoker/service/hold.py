"""`hold`: lets jobs that have not begun wait until somebody releases them."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_pending
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import change_each
from stoker.service.pending_states import settle
from stoker.wire import Changed, Hold


async def hold(context: QueueContext, order: Hold) -> Changed:
    """Hold jobs."""

    def change(job: int, state: State) -> str | None:
        if state is State.HELD:
            return f"job {job} is held already"
        if not is_pending(state):
            return f"job {job} is {state.value}: only what has not begun can be held"
        context.pending.hold(job, True)
        settle(context, job)
        return None

    return await change_each(context, order, change, fits=is_pending)
