"""What `hold`, `release` and others share: a pending job comes to the state it belongs in, and it is told."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.wire import JobEvent


def settle(context: QueueContext, job: int) -> None:
    """Bring a pending job, and what waits for it, to where they belong; inside a transaction."""
    tell(context, context.pending.settle(job, time.time_ns() // 1000))


def settle_dependants(context: QueueContext, job: int) -> None:
    """The same for those that wait for a job."""
    tell(context, context.pending.on_over(job, time.time_ns() // 1000))


def tell(context: QueueContext, changes: list[tuple[int, State]]) -> None:
    """Publish changes of state."""
    for job, state in changes:
        context.events.publish(JobEvent(id=job, state=state, attempt=0, at=time.time()))
