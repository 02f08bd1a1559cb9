"""`kill`: ends jobs with all their processes."""

from __future__ import annotations

import asyncio
import contextlib
import time

from stoker.core.job import Ending
from stoker.core.lifecycle import State, is_final, is_pending
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.failpoints import reach
from stoker.service.bulk_change import SLICE
from stoker.service.job_selection import find
from stoker.service.pending_states import settle_dependants
from stoker.store.database import FullDiskError
from stoker.store.job_queries import state_of
from stoker.wire import Changed, JobEvent, Kill, Refusal

REASON = "killed by request"


def end_attempt(
    context: QueueContext, running: RunningAttempt, reason: str, ending: Ending = Ending.KILL
) -> None:
    """End a running attempt that breaks a limit, unless it is being ended; also on a full disk."""
    if running.end_request is not None:
        return
    with contextlib.suppress(FullDiskError), context.database.transaction():
        context.jobs.mark_ending(running.attempt.job, reason, ending=ending)
    context.engine.termination.end(running, ending, reason)
    context.driver.poke()


async def kill(context: QueueContext, order: Kill) -> Changed:
    """End running jobs (stop signal, grace time, KILL) and cancel waiting jobs.

    Sweeps that would add runs to a project, or with --all any sweep, add no more.
    """
    found = find(context, order)
    if order.ids is None and not order.states:
        context.searches.close(order.project)
    named = order.ids is not None
    ended: list[int] = []
    refused: list[Refusal] = []
    for start in range(0, len(found), SLICE):
        part = [job for job, _state in found[start : start + SLICE]]
        _kill_slice(context, part, order.grace_s, ended, refused)
        context.driver.poke()
        await asyncio.sleep(0)
    warning = context.database.sync()
    return Changed(ids=ended, refused=refused if named else [], notice=warning)


def _kill_slice(
    context: QueueContext,
    jobs: list[int],
    grace_s: float | None,
    ended: list[int],
    refused: list[Refusal],
) -> None:
    now_us = time.time_ns() // 1000
    cancelled, running = [], []
    try:
        with context.database.transaction():
            for job in jobs:
                state = state_of(context.database, job)
                if state is not None and is_pending(state):
                    context.jobs.cancel(job, REASON, now_us)
                    settle_dependants(context, job)
                    cancelled.append(job)
                elif state is None or is_final(state):
                    word = "gone" if state is None else state.value
                    refused.append(Refusal(job, f"job {job} is {word} already"))
                else:
                    context.jobs.mark_ending(job, REASON, grace_s)
                    running.append(job)
    except FullDiskError as error:
        # End the running jobs anyway: one of them may have filled the disk.
        _end(context, jobs, grace_s)
        context.driver.poke()
        raise FullDiskError(
            f"cannot write {context.database.path}: what waits is not killed, what runs is told to end all"
            " the same; make room, then try again"
        ) from error
    reach("kill-committed")
    _end(context, running, grace_s)
    for job in cancelled:
        context.events.publish(
            JobEvent(id=job, state=State.KILLED, attempt=0, at=now_us / 1e6, reason=REASON)
        )
    ended += sorted([*cancelled, *running])


def _end(context: QueueContext, jobs: list[int], grace_s: float | None) -> None:
    for job in jobs:
        attempt = context.running(job)
        if attempt is not None:
            context.engine.termination.kill(attempt, REASON, grace_s)
