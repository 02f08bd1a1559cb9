"""`release`: lets held jobs go on."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import change_each
from stoker.service.pending_states import settle
from stoker.wire import Changed, Release


async def release(context: QueueContext, order: Release) -> Changed:
    """Release jobs: they wait for what else they wait for, or start."""

    def change(job: int, state: State) -> str | None:
        if state is not State.HELD:
            return f"job {job} is {state.value}, not held"
        context.pending.hold(job, False)
        settle(context, job)
        return None

    return await change_each(context, order, change, fits=lambda state: state is State.HELD)
