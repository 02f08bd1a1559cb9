"""`suspend`: moves the GPU memory of running jobs to host RAM, so that others can use their GPUs."""

from __future__ import annotations

import asyncio

from stoker.core.lifecycle import State
from stoker.core.suspension import Stage
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.suspensions import Suspensions
from stoker.service.job_selection import find
from stoker.store.job_queries import state_of
from stoker.wire import Changed, Preempt, Refusal, Suspend

_ANSWER_WITHIN_S = 45.0  # clients wait for a minute


async def suspend(context: QueueContext, order: Suspend) -> Changed:
    """Move the GPU memory of running jobs to host RAM. They stop, and their GPUs are free."""
    return await _suspend_each(context, order, resumes=False)


async def suspend_to_queue(context: QueueContext, order: Preempt) -> Changed:
    """Suspend running jobs; they wait for their GPUs behind the others of their priority."""
    return await _suspend_each(context, order, resumes=True)


def queue_suspended(context: QueueContext, job: int) -> str | None:
    """Let a suspended job wait for its GPUs; returns why it does not. Call it inside a transaction."""
    running = context.running(job)
    suspension = None if running is None else Suspensions.of(running)
    if running is None or suspension is None:
        return f"job {job} is not suspended any more"
    if running.end_request is not None:
        return f"job {job} is being ended: {running.end_request.reason}"
    if suspension.stage is not Stage.SUSPENDED:
        return f"job {job} is being resumed already: stoker why {job} tells how far it is"
    _suspensions(context).queue(running)
    return None


async def _suspend_each(
    context: QueueContext, order: Suspend | Preempt, *, resumes: bool
) -> Changed:
    """Suspend each job of a selection, all at the same time."""
    named = order.ids is not None
    refused: list[Refusal] = []
    begun: dict[int, asyncio.Task[str | None]] = {}
    for job, _state in find(context, order):
        state = state_of(context.database, job)
        if not named and state is not State.RUNNING:
            continue
        found = _find_running(context, job, state)
        if isinstance(found, str):
            refused.append(Refusal(job, found))
        else:
            parked = isinstance(order, Suspend) and order.parked
            suspending = _suspend_one(context, found, resumes=resumes, parked=parked)
            begun[job] = asyncio.ensure_future(suspending)
    if begun:
        await asyncio.wait(begun.values(), timeout=_ANSWER_WITHIN_S)
    done = []
    late = [job for job, task in begun.items() if not task.done()]
    for job, task in begun.items():
        reason = task.result() if task.done() else None
        if reason is None:
            done.append(job)
        else:
            refused.append(Refusal(job, reason))
    context.events.touch()
    notice = "; ".join(f"job {job} is still being suspended: stoker why {job}" for job in late)
    return Changed(ids=done, refused=refused, notice=notice or None)


async def _suspend_one(
    context: QueueContext, running: RunningAttempt, *, resumes: bool, parked: bool
) -> str | None:
    if resumes:
        with context.database.transaction():
            context.jobs.put_behind(running.attempt.job)
    return await _suspensions(context).suspend(running, resumes=resumes, parked=parked)


def _find_running(context: QueueContext, job: int, state: State | None) -> RunningAttempt | str:
    """Return the attempt of a job that can be suspended, or why it cannot be."""
    if state is State.SUSPENDED:
        return f"job {job} is suspended already"
    if state is not State.RUNNING:
        word = "gone" if state is None else state.value
        return f"job {job} is {word}: only what runs can be suspended"
    running = context.running(job)
    if running is None or running.pid is None:
        return f"job {job} is being started: try again when it runs"
    return _why_not(context, running) or running


def _why_not(context: QueueContext, running: RunningAttempt) -> str | None:
    """Return why a running job cannot be suspended; None if it can."""
    job = running.attempt.job
    if running.end_request is not None:
        return f"job {job} is being ended: {running.end_request.reason}"
    if running.is_suspended:
        return f"job {job} is being suspended already: stoker why {job} tells how far it is"
    if not running.slots:
        return f"job {job} uses no GPU: stoker pause {job} stops it"
    if not context.engine.slot_table.is_own(running.where):
        return (
            f"job {job} runs on node {running.where}: only jobs on this machine can be suspended,"
            f" stoker preempt {job} ends it and lets it wait again"
        )
    if context.engine.gpus.is_mps_client(running):
        return (
            f"job {job} runs with MPS, which the driver cannot suspend: stoker pause {job} stops it,"
            f" stoker preempt {job} ends it and lets it wait again, and stoker config mps never keeps"
            " later jobs off MPS"
        )
    return None


def _suspensions(context: QueueContext) -> Suspensions:
    suspensions = context.engine.suspensions
    assert suspensions is not None  # every daemon has them
    return suspensions
