"""`start`: lets jobs start as the very next."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_pending
from stoker.engine.hub import Hub
from stoker.engine.service.each import change_each
from stoker.engine.service.shelving import settle
from stoker.wire import Changed, Start


async def start(hub: Hub, order: Start) -> Changed:
    """Put jobs before all others: past holds, times, needs, pauses and limits, but not onto taken GPUs."""
    if order.queue:
        hub.pulse.poke()
        return Changed(ids=[])

    def change(job: int, state: State) -> str | None:
        if not is_pending(state):
            return f"job {job} is {state.value}: only what has not begun can be started"
        hub.shelf.hold(job, False)
        hub.shelf.delay(job, None)
        hub.shelf.unlink(job)
        settle(hub, job)
        hub.jobs.force(job)
        return None

    return await change_each(hub, order, change, fits=is_pending)
