"""`pause`: stops running jobs where they are, or lets the queue start nothing more."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.failpoints import reach
from stoker.service.bulk_change import change_each
from stoker.wire import Changed, Pause

_BY_HAND = "paused by hand"


async def pause(context: QueueContext, order: Pause) -> Changed:
    """Stop trees with SIGSTOP; their GPUs and memory stay theirs. Or pause the queue."""
    if order.queue:
        with context.database.transaction(durable=True):
            if order.project is None:
                context.admission.pause_queue(_BY_HAND)
            else:
                context.admission.pause_project(order.project, _BY_HAND)
        reach("pause-committed")
        context.engine.revoke_followers(order.project)
        context.events.touch()
        return Changed(ids=[])

    def change(job: int, state: State) -> str | None:
        if state is State.PAUSED:
            return f"job {job} is paused already"
        if state is not State.RUNNING:
            return (
                f"job {job} is {state.value}: only what runs can be paused (hold keeps it waiting)"
            )
        running = context.running(job)
        if running is not None and running.killed_because is not None:
            return f"job {job} is being ended: {running.killed_because}"
        context.jobs.pause(job, time.time_ns() // 1000)
        return None

    return await change_each(
        context,
        order,
        change,
        fits=lambda state: state is State.RUNNING,
        then=context.engine.termination.pause,
    )
