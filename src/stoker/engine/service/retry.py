"""`retry`: lets jobs that are over run once more."""

from __future__ import annotations

import asyncio
import time

from stoker.core.lifecycle import State, is_final
from stoker.engine.hub import Hub
from stoker.engine.service.kill import SLICE, state_of
from stoker.engine.service.select import find
from stoker.failpoints import reach
from stoker.wire import Changed, JobEvent, Refusal, Retry


async def retry(hub: Hub, order: Retry) -> Changed:
    """Queue ended jobs again, at their old place; without ids only what did not succeed."""
    found = find(hub, order)
    if order.ids is None:
        meant = [state for state in order.states or State if is_final(state)]
        if not order.states:
            meant.remove(State.DONE)
        found = [(job, state) for job, state in found if state in meant]
    again: list[int] = []
    refused: list[Refusal] = []
    for start in range(0, len(found), SLICE):
        part = [job for job, _state in found[start : start + SLICE]]
        again += _retry_slice(hub, part, order, refused)
        await asyncio.sleep(0)
    hub.database.sync()
    return Changed(ids=again, refused=refused)


def _retry_slice(hub: Hub, jobs: list[int], order: Retry, refused: list[Refusal]) -> list[int]:
    again = []
    with hub.database.transaction():
        for job in jobs:
            reason = _retry_one(hub, job, order)
            if reason is None:
                again.append(job)
            else:
                refused.append(Refusal(job, reason))
    reach("retry-committed")
    for job in again:
        hub.events.publish(JobEvent(id=job, state=State.WAITING, attempt=0, at=time.time()))
    hub.pulse.poke()
    return again


def _retry_one(hub: Hub, job: int, order: Retry) -> str | None:
    """Queue a job again, or say why not."""
    state = state_of(hub, job)
    if state is None or not is_final(state):
        word = "gone" if state is None else state.value
        return f"job {job} is {word}: only what is over can be retried"
    slots = len(hub.engine.board.places)
    if hub.jobs.facts(job).gpus > slots:
        return f"job {job} asks for more GPUs than the {slots} of this queue"
    hub.jobs.renew(job, state, fresh=order.fresh)
    return None
