"""Updates the states of jobs that have not started, and publishes the changes."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.wire import JobEvent


def settle(context: QueueContext, job: int) -> None:
    """Update the state of a pending job and of the jobs that wait for it; inside a transaction."""
    tell(context, context.pending.settle(job, time.time_ns() // 1000))


def settle_dependants(context: QueueContext, job: int) -> None:
    """Update the states of the jobs that wait for a job; inside a transaction."""
    tell(context, context.pending.on_over(job, time.time_ns() // 1000))


def tell(context: QueueContext, changes: list[tuple[int, State]]) -> None:
    """Publish changes of state."""
    for job, state in changes:
        context.events.publish(JobEvent(id=job, state=state, attempt=0, at=time.time()))
