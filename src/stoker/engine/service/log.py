"""`log`: where an attempt's output is, and whether more of it can come."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from stoker.core.lifecycle import is_final
from stoker.engine.hub import Hub
from stoker.engine.orders import log_path
from stoker.engine.service.each import state_of
from stoker.engine.service.select import find_one
from stoker.errors import NotFoundError

DAEMON = "daemon"


class LogFile(msgspec.Struct, frozen=True):
    """A file of output; `is_over` tells whether no more can come."""

    path: str
    id: int
    attempt: int
    is_over: Callable[[], bool]


def find(hub: Hub, job: str, attempt: int | None) -> LogFile:
    """The log of a job's attempt (the present or last one), or the daemon's own."""
    if job == DAEMON:
        return LogFile(os.path.join(hub.home, "daemon.log"), 0, 0, lambda: False)
    number = find_one(hub, job)
    facts = hub.jobs.facts(number)
    wanted = attempt or max(facts.attempt, 1)
    if wanted > max(facts.attempt, 1):
        last = f"its last is {facts.attempt}" if facts.attempt else "it has not begun"
        raise NotFoundError(f"job {number} has no attempt {wanted}: {last}")
    path = log_path(hub.home, facts, wanted)

    def is_over() -> bool:
        state = state_of(hub, number)
        return state is None or is_final(state) or hub.jobs.facts(number).attempt > wanted

    return LogFile(path, number, wanted, is_over)
