"""`retry`: queues ended jobs again."""

from __future__ import annotations

import asyncio
import time

from stoker.core.lifecycle import State, is_final, is_pending
from stoker.core.placement import read_where
from stoker.engine.context import QueueContext
from stoker.errors import UsageError
from stoker.failpoints import reach
from stoker.service.bulk_change import SLICE
from stoker.service.job_selection import find
from stoker.service.pending_states import settle, settle_dependants
from stoker.service.placement_check import check_where
from stoker.store.job_queries import reason_of, state_of
from stoker.wire import Changed, JobEvent, Refusal, Retry

Found = tuple[int, State]


async def retry(context: QueueContext, order: Retry) -> Changed:
    """Queue ended jobs again, in their old position.

    Without ids only those that did not succeed, without those that their sweep has stopped early.
    """
    found = find(context, order)
    if order.ids is None:
        meant = [state for state in order.states or State if is_final(state)]
        if not order.states:
            meant = [state for state in meant if state not in (State.DONE, State.PRUNED)]
        found = [(job, state) for job, state in found if state in meant]
    if order.reason is not None:
        wanted = order.reason.lower()
        found = [
            row for row in found if wanted in (reason_of(context.database, row[0]) or "").lower()
        ]
    # Skipped jobs last: retrying the jobs that they need may queue them too.
    found.sort(key=lambda row: (row[1] is State.SKIPPED, row[0]))
    again: list[int] = []
    refused: list[Refusal] = []
    for start in range(0, len(found), SLICE):
        again += _retry_slice(context, found[start : start + SLICE], order, refused)
        await asyncio.sleep(0)
    warning = context.database.sync()
    return Changed(ids=sorted(again), refused=refused, notice=warning)


def _retry_slice(
    context: QueueContext, rows: list[Found], order: Retry, refused: list[Refusal]
) -> list[int]:
    again = []
    with context.database.transaction():
        for job, state in rows:
            reason = _retry_one(context, job, state, order)
            if reason is None:
                again.append(job)
            else:
                refused.append(Refusal(job, reason))
    reach("retry-committed")
    for job in again:
        now = state_of(context.database, job)
        if now is not None:
            context.events.publish(JobEvent(id=job, state=now, attempt=0, at=time.time()))
    context.driver.poke()
    return again


def _retry_one(context: QueueContext, job: int, found_as: State, order: Retry) -> str | None:
    """Queue a job again, or say why not."""
    state = state_of(context.database, job)
    if state is not None and found_as is State.SKIPPED and is_pending(state):
        return None  # the retry of a job that it needs has queued it
    if state is None or not is_final(state):
        running = context.running(job)
        if running is not None and running.end_request is not None:
            return f"job {job} is being ended: retry it when it is over (stoker wait {job})"
        word = "gone" if state is None else state.value
        return f"job {job} is {word}: only what is over can be retried"
    if state is State.SKIPPED and any(need.is_hopeless for need in context.pending.needs_of(job)):
        reason = reason_of(context.database, job)
        return f"job {job} {reason}: retry that, or stoker set {job} after=none"
    facts = context.jobs.facts(job)
    slots = context.engine.slot_table.slots_left()
    if facts.request.slots > slots:
        return f"job {job} asks for more GPUs than the {slots} of this queue"
    try:
        check_where(context, read_where(facts.request.where), facts.request.slots)
    except UsageError as error:
        return f"job {job} cannot run: {error}; stoker set {job} node=none on=none lets it run anywhere"
    if order.fresh and facts.request.options.sync:
        return (
            f"job {job} was added with --sync and runs from what was shipped: add it again instead"
        )
    context.jobs.renew(job, state, fresh=order.fresh)
    context.ranks.place(job, job)
    context.pending.hold(job, False)
    settle(context, job)
    settle_dependants(context, job)
    return None
