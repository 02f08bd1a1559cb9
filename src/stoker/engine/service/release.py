"""`release`: lets held jobs go on."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.engine.service.each import change_each
from stoker.engine.service.shelving import settle
from stoker.wire import Changed, Release


async def release(hub: Hub, order: Release) -> Changed:
    """Release jobs: they wait for what else they wait for, or start."""

    def change(job: int, state: State) -> str | None:
        if state is not State.HELD:
            return f"job {job} is {state.value}, not held"
        hub.shelf.hold(job, False)
        settle(hub, job)
        return None

    return await change_each(hub, order, change, fits=lambda state: state is State.HELD)
