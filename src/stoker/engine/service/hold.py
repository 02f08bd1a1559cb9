"""`hold`: lets jobs that have not begun wait until somebody releases them."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_pending
from stoker.engine.hub import Hub
from stoker.engine.service.each import change_each
from stoker.engine.service.shelving import settle
from stoker.wire import Changed, Hold


async def hold(hub: Hub, order: Hold) -> Changed:
    """Hold jobs."""

    def change(job: int, state: State) -> str | None:
        if state is State.HELD:
            return f"job {job} is held already"
        if not is_pending(state):
            return f"job {job} is {state.value}: only what has not begun can be held"
        hub.shelf.hold(job, True)
        settle(hub, job)
        return None

    return await change_each(hub, order, change, fits=is_pending)
