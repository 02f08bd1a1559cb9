"""`resume`: lets stopped jobs, or the paused queue, go on."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError
from stoker.failpoints import reach
from stoker.service.bulk_change import change_each
from stoker.wire import Changed, Resume


async def resume(context: QueueContext, order: Resume) -> Changed:
    """Let trees go on with SIGCONT, or the queue start jobs at once.

    The queue takes with it the jobs without a project, should the brake have paused these.
    """
    if order.queue:
        with context.database.transaction(durable=True):
            if order.project is None:
                if (
                    not context.admission.resume_project(None)
                    and context.admission.queue_paused is None
                ):
                    raise ConflictError("the queue is not paused")
                context.admission.resume_queue()
            elif not context.admission.resume_project(order.project):
                raise ConflictError(f"project {order.project} is not paused")
        reach("resume-committed")
        context.events.touch()
        context.driver.poke()
        return Changed(ids=[])

    def change(job: int, state: State) -> str | None:
        if state is not State.PAUSED:
            return f"job {job} is {state.value}, not paused"
        context.jobs.resume(job, time.time_ns() // 1000)
        return None

    return await change_each(
        context,
        order,
        change,
        fits=lambda state: state is State.PAUSED,
        then=context.engine.termination.resume,
    )
