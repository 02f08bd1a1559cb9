"""`pause` and `resume`: stop and continue running jobs, the queue, or a project."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.admission import QUEUE, name_of
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError
from stoker.failpoints import reach
from stoker.service.bulk_change import change_each
from stoker.service.suspend import queue_suspended
from stoker.wire import Changed, Pause, Resume

_BY_HAND = "paused by hand"


async def pause(context: QueueContext, order: Pause) -> Changed:
    """Pause running jobs with SIGSTOP, or the queue, or a project. Paused jobs keep their GPUs."""
    if order.queue:
        return _pause_queue(context, order.project)

    def change(job: int, state: State) -> str | None:
        if state is State.PAUSED:
            return f"job {job} is paused already"
        if state is not State.RUNNING:
            return (
                f"job {job} is {state.value}: only what runs can be paused (hold keeps it waiting)"
            )
        running = context.running(job)
        if running is not None and running.end_request is not None:
            return f"job {job} is being ended: {running.end_request.reason}"
        if running is not None and running.is_suspended:
            return f"job {job} is being suspended: stoker why {job} tells how far it is"
        context.jobs.pause(job, time.time_ns() // 1000)
        return None

    stop = context.engine.termination.pause
    return await change_each(context, order, change, fits=State.RUNNING.__eq__, then=stop)


async def resume(context: QueueContext, order: Resume) -> Changed:
    """Resume paused jobs with SIGCONT, or the queue, or a project. Suspended jobs wait for their GPUs.

    Resuming the queue also resumes the jobs without a project, if a failure limit has paused them.
    """
    if order.queue:
        return _resume_queue(context, order.project)

    def change(job: int, state: State) -> str | None:
        if state is State.SUSPENDED:
            return queue_suspended(context, job)
        if state is not State.PAUSED:
            return f"job {job} is {state.value}, not paused or suspended"
        context.jobs.resume(job, time.time_ns() // 1000)
        return None

    go_on = context.engine.termination.resume
    return await change_each(context, order, change, fits=_is_stopped, then=go_on)


def _is_stopped(state: State) -> bool:
    return state in (State.PAUSED, State.SUSPENDED)


def _pause_queue(context: QueueContext, project: str | None) -> Changed:
    with context.database.transaction(durable=True):
        if project is None:
            context.admission.pause_queue(_BY_HAND)
        else:
            context.admission.pause_project(project, _BY_HAND)
    reach("pause-committed")
    context.engine.revoke_followers(project)
    context.events.touch()
    return Changed(ids=[])


def _resume_queue(context: QueueContext, project: str | None) -> Changed:
    admission = context.admission
    with context.database.transaction(durable=True):
        was_paused = admission.resume_project(project)
        if project is not None and not was_paused:
            raise ConflictError(f"project {project} is not paused")
        if project is None:
            if not was_paused and admission.queue_paused is None:
                raise ConflictError("the queue is not paused")
            admission.resume_queue()
    reach("resume-committed")
    context.publisher.on_resume(name_of(project))
    if project is None:
        context.publisher.on_resume(QUEUE)
    context.events.touch()
    context.driver.poke()
    return Changed(ids=[])
