"""`hold` and `release`: keep jobs from starting, and let them start again."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_pending
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import change_each
from stoker.service.pending_states import settle
from stoker.wire import Changed, Hold, Release


async def hold(context: QueueContext, order: Hold) -> Changed:
    """Hold jobs that have not started until they are released."""

    def change(job: int, state: State) -> str | None:
        if state is State.HELD:
            return f"job {job} is held already"
        if not is_pending(state):
            return f"job {job} is {state.value}: only what has not begun can be held"
        context.pending.hold(job, True)
        settle(context, job)
        return None

    return await change_each(context, order, change, fits=is_pending)


async def release(context: QueueContext, order: Release) -> Changed:
    """Release held jobs. They start when nothing else keeps them waiting."""

    def change(job: int, state: State) -> str | None:
        if state is not State.HELD:
            return f"job {job} is {state.value}, not held"
        context.pending.hold(job, False)
        settle(context, job)
        return None

    return await change_each(context, order, change, fits=State.HELD.__eq__)
