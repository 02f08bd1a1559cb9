"""`preempt`: lets running jobs make room and wait again."""

from __future__ import annotations

from stoker.core.job import Ending
from stoker.core.lifecycle import State, is_live
from stoker.engine.hub import Hub
from stoker.engine.service.each import change_each
from stoker.wire import Changed, Preempt

REASON = "preempted by request"


async def preempt(hub: Hub, order: Preempt) -> Changed:
    """Ask jobs to stop, with the signal and the grace they were added with; then they wait again."""

    def change(job: int, state: State) -> str | None:
        if not is_live(state):
            return f"job {job} is {state.value}: only what runs can be preempted"
        running = hub.running(job)
        if running is not None and running.killed_because is not None:
            return f"job {job} is being ended already: {running.killed_because}"
        hub.jobs.mark_ending(job, REASON, ending=Ending.PREEMPT)
        return None

    return await change_each(
        hub,
        order,
        change,
        fits=is_live,
        then=lambda running: hub.engine.endings.preempt(running, REASON),
    )
