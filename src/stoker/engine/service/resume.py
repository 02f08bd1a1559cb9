"""`resume`: lets stopped jobs, or the paused queue, go on."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.engine.service.each import change_each
from stoker.errors import ConflictError
from stoker.failpoints import reach
from stoker.wire import Changed, Resume


async def resume(hub: Hub, order: Resume) -> Changed:
    """Let trees go on with SIGCONT, or the queue start jobs at once.

    The queue takes with it the jobs without a project, should the brake have paused these.
    """
    if order.queue:
        with hub.database.transaction(durable=True):
            if order.project is None:
                if not hub.gate.resume_project(None) and hub.gate.queue_paused is None:
                    raise ConflictError("the queue is not paused")
                hub.gate.resume_queue()
            elif not hub.gate.resume_project(order.project):
                raise ConflictError(f"project {order.project} is not paused")
        reach("resume-committed")
        hub.events.touch()
        hub.pulse.poke()
        return Changed(ids=[])

    def change(job: int, state: State) -> str | None:
        if state is not State.PAUSED:
            return f"job {job} is {state.value}, not paused"
        hub.jobs.resume(job, time.time_ns() // 1000)
        return None

    return await change_each(
        hub,
        order,
        change,
        fits=lambda state: state is State.PAUSED,
        then=hub.engine.endings.resume,
    )
