"""`log`: finds the log of an attempt, and whether it can still grow."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from stoker.core.lifecycle import is_final
from stoker.engine.context import QueueContext
from stoker.engine.launch_spec import log_path
from stoker.errors import NotFoundError
from stoker.service.job_selection import find_one
from stoker.store.job_queries import state_of

DAEMON = "daemon"


class AttemptLog(msgspec.Struct, frozen=True):
    """The log of an attempt; `is_over` says whether no more output can come."""

    path: str
    id: int
    attempt: int
    is_over: Callable[[], bool]


def find(context: QueueContext, job: str, attempt: int | None) -> AttemptLog:
    """Return the log of a job's attempt (by default the last), or the daemon's own."""
    if job == DAEMON:
        return AttemptLog(os.path.join(context.home, "daemon.log"), 0, 0, lambda: False)
    number = find_one(context, job)
    facts = context.jobs.facts(number)
    wanted = attempt or max(facts.attempt, 1)
    if wanted > max(facts.attempt, 1):
        last = f"its last is {facts.attempt}" if facts.attempt else "it has not begun"
        raise NotFoundError(f"job {number} has no attempt {wanted}: {last}")
    path = log_path(context.home, facts, wanted)

    def is_over() -> bool:
        state = state_of(context.database, number)
        return state is None or is_final(state) or context.jobs.facts(number).attempt > wanted

    return AttemptLog(path, number, wanted, is_over)
