"""`retry`: lets jobs that are over run once more."""

from __future__ import annotations

import asyncio
import time

from stoker.core.lifecycle import State, is_final
from stoker.engine.hub import Hub
from stoker.engine.service.kill import SLICE, state_of
from stoker.engine.service.select import find
from stoker.errors import UsageError
from stoker.failpoints import reach
from stoker.wire import Changed, JobEvent, Refusal, Retry


async def retry(hub: Hub, order: Retry) -> Changed:
    """Queue ended jobs again, at their old place; without ids only what did not succeed."""
    found = find(hub, order)
    if order.ids is None and not order.states:
        found = [(job, state) for job, state in found if state is not State.DONE]
    again: list[int] = []
    refused: list[Refusal] = []
    for start in range(0, len(found), SLICE):
        with hub.database.transaction():
            for job, _state in found[start : start + SLICE]:
                _retry_one(hub, job, order, again, refused)
        reach("retry-committed")
        await asyncio.sleep(0)
    hub.database.sync()
    for job in again:
        hub.events.publish(JobEvent(id=job, state=State.WAITING, attempt=0, at=time.time()))
    hub.pulse.poke()
    return Changed(ids=again, refused=refused if order.ids is not None else [])


def _retry_one(hub: Hub, job: int, order: Retry, again: list[int], refused: list[Refusal]) -> None:
    state = state_of(hub, job)
    if state is None or not is_final(state):
        word = "gone" if state is None else state.value
        refused.append(Refusal(job, f"job {job} is {word}: only what is over can be retried"))
        return
    slots = len(hub.engine.board.places)
    if hub.jobs.facts(job).gpus > slots:
        raise UsageError(f"job {job} asks for more GPUs than the {slots} of this queue")
    hub.jobs.renew(job, state, fresh=order.fresh)
    again.append(job)
