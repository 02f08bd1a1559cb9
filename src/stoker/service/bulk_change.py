"""Changes each job of a selection, in slices, and collects the refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.failpoints import reach
from stoker.service.job_selection import find
from stoker.store.job_queries import state_of
from stoker.wire import Changed, Refusal, Selection

SLICE = 500


async def change_each(
    context: QueueContext,
    selection: Selection,
    change: Callable[[int, State], str | None],
    *,
    fits: Callable[[State], bool] = lambda _state: True,
    then: Callable[[RunningAttempt], None] | None = None,
) -> Changed:
    """Call `change` for each job with its state; it returns None, or why it refuses.

    Each slice is one transaction; after its commit, `then` is called for each changed job that is running. If
    the selection names no ids, jobs that do not fit are skipped without a refusal.
    """
    named = selection.ids is not None
    changed: list[int] = []
    refused: list[Refusal] = []
    found = [job for job, state in find(context, selection) if named or fits(state)]
    for start in range(0, len(found), SLICE):
        done = len(changed)
        with context.database.transaction():
            for job in found[start : start + SLICE]:
                state = state_of(context.database, job)
                reason = f"job {job} is gone" if state is None else change(job, state)
                if reason is None:
                    changed.append(job)
                else:
                    refused.append(Refusal(job, reason))
        reach("changed-slice")
        for job in changed[done:] if then is not None else ():
            running = context.running(job)
            if running is not None and then is not None:
                then(running)
        await asyncio.sleep(0)
    warning = context.database.sync()
    context.events.touch()
    context.driver.poke()
    return Changed(ids=changed, refused=refused if named else [], notice=warning)
