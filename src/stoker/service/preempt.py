"""`preempt`: stops running jobs, which then wait again."""

from __future__ import annotations

from stoker.core.job import Ending
from stoker.core.lifecycle import State, is_live
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import change_each
from stoker.service.suspend import suspend_to_queue
from stoker.wire import Changed, Preempt

REASON = "preempted by request"


async def preempt(context: QueueContext, order: Preempt) -> Changed:
    """Stop running jobs to make room, with their own stop signal and grace time; they wait again.

    With `suspend` the driver moves their GPU memory to host RAM, and they go on from there.
    """
    if order.suspend:
        return await suspend_to_queue(context, order)

    def change(job: int, state: State) -> str | None:
        if state is State.SUSPENDED:
            return f"job {job} is suspended: it uses no GPU"
        if not is_live(state):
            return f"job {job} is {state.value}: only what runs can be preempted"
        running = context.running(job)
        if running is not None and running.end_request is not None:
            return f"job {job} is being ended already: {running.end_request.reason}"
        context.jobs.mark_ending(job, REASON, ending=Ending.PREEMPT)
        return None

    return await change_each(
        context,
        order,
        change,
        fits=is_live,
        then=lambda running: context.engine.termination.preempt(running, REASON),
    )
