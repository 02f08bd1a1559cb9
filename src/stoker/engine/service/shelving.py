"""What `hold`, `release` and others share: a pending job comes to the state it belongs in, and it is told."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.wire import JobEvent


def settle(hub: Hub, job: int) -> None:
    """Bring a pending job, and what waits for it, to where they belong; inside a transaction."""
    tell(hub, hub.shelf.settle(job, time.time_ns() // 1000))


def settle_dependants(hub: Hub, job: int) -> None:
    """The same for those that wait for a job."""
    tell(hub, hub.shelf.on_over(job, time.time_ns() // 1000))


def tell(hub: Hub, changes: list[tuple[int, State]]) -> None:
    """Publish changes of state."""
    for job, state in changes:
        hub.events.publish(JobEvent(id=job, state=state, attempt=0, at=time.time()))
