"""`prune`: stops runs of a sweep early, because the sweep needs them no more."""

from __future__ import annotations

import asyncio
import time

from stoker.core.job import Ending
from stoker.core.lifecycle import State, is_final, is_pending
from stoker.engine.context import QueueContext
from stoker.service.bulk_change import SLICE
from stoker.service.pending_states import settle_dependants
from stoker.store.job_queries import state_of
from stoker.store.sweep_records import states_of
from stoker.wire import Changed, JobEvent, Prune, Refusal, from_wire


async def prune(context: QueueContext, order: Prune) -> Changed:
    """Stop runs of a sweep early: those of these jobs, or all that have not begun."""
    known = dict(states_of(context.database, order.name, from_wire(order.cwd)))
    refused: list[Refusal] = []
    if order.jobs is None:
        wanted = [job for job, state in known.items() if is_pending(state)]
    else:
        wanted = [job for job in order.jobs if job in known]
        refused = [
            Refusal(job, f"job {job} is no run of sweep {order.name}")
            for job in order.jobs
            if job not in known
        ]
    changed: list[int] = []
    for start in range(0, len(wanted), SLICE):
        changed += _prune_slice(context, wanted[start : start + SLICE], order, refused)
        context.driver.poke()
        await asyncio.sleep(0)
    warning = context.database.sync()
    return Changed(ids=changed, refused=refused, notice=warning)


def _prune_slice(
    context: QueueContext, jobs: list[int], order: Prune, refused: list[Refusal]
) -> list[int]:
    now_us = time.time_ns() // 1000
    discarded, live = [], []
    with context.database.transaction():
        for job in jobs:
            state = state_of(context.database, job)
            running = context.running(job)
            if state is not None and is_pending(state):
                context.jobs.discard(job, order.reason, now_us)
                settle_dependants(context, job)
                discarded.append(job)
            elif state is None or is_final(state):
                word = "gone" if state is None else state.value
                refused.append(Refusal(job, f"job {job} is {word} already"))
            elif running is None or running.end_request is not None:
                refused.append(Refusal(job, f"job {job} is being ended already"))
            else:
                context.jobs.mark_ending(job, order.reason, order.grace_s, Ending.PRUNE)
                live.append(running)
    for running in live:
        context.engine.termination.prune(running, order.reason, order.grace_s)
    for job in discarded:
        context.events.publish(
            JobEvent(id=job, state=State.PRUNED, attempt=0, at=now_us / 1e6, reason=order.reason)
        )
    return sorted([*discarded, *(running.attempt.job for running in live)])
