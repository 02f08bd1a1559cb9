"""Does something to each job of a selection, in slices, and tells what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stoker.core.lifecycle import State
from stoker.engine.board import Running
from stoker.engine.hub import Hub
from stoker.engine.service.select import find
from stoker.failpoints import reach
from stoker.wire import Changed, Refusal, Selection

SLICE = 500


async def change_each(
    hub: Hub,
    selection: Selection,
    change: Callable[[int, State], str | None],
    *,
    fits: Callable[[State], bool] = lambda _state: True,
    then: Callable[[Running], None] | None = None,
) -> Changed:
    """Call `change` for each job with its present state; what it answers is why it refused.

    Each slice is one transaction; once it is on record, `then` is called for what runs of it. Jobs
    that were not named one by one are passed over silently where they do not fit.
    """
    named = selection.ids is not None
    changed: list[int] = []
    refused: list[Refusal] = []
    found = [job for job, state in find(hub, selection) if named or fits(state)]
    for start in range(0, len(found), SLICE):
        done = len(changed)
        with hub.database.transaction():
            for job in found[start : start + SLICE]:
                state = state_of(hub, job)
                reason = f"job {job} is gone" if state is None else change(job, state)
                if reason is None:
                    changed.append(job)
                else:
                    refused.append(Refusal(job, reason))
        reach("changed-slice")
        for job in changed[done:] if then is not None else ():
            running = hub.running(job)
            if running is not None and then is not None:
                then(running)
        await asyncio.sleep(0)
    warning = hub.database.sync()
    hub.events.touch()
    hub.pulse.poke()
    return Changed(ids=changed, refused=refused if named else [], notice=warning)


def state_of(hub: Hub, job: int) -> State | None:
    """Where a job stands at this moment; None if it is gone."""
    row = hub.database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()
    return State(row[0]) if row else None
