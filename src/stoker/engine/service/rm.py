"""`rm`: forgets jobs, with their logs."""

from __future__ import annotations

import asyncio
import contextlib
import os

from stoker.core.lifecycle import State, is_live
from stoker.engine.hub import Hub
from stoker.engine.orders import log_path
from stoker.engine.service.kill import REASON, SLICE, state_of
from stoker.engine.service.select import find
from stoker.failpoints import reach
from stoker.wire import Changed, Refusal, Remove


async def rm(hub: Hub, order: Remove) -> Changed:
    """Forget jobs that are over or wait; with `kill` also those that run, once they have ended."""
    found = find(hub, order)
    named = order.ids is not None
    refused: list[Refusal] = []
    if order.kill:
        await _kill(hub, [job for job, state in found if is_live(state)])
    gone: list[int] = []
    for start in range(0, len(found), SLICE):
        rows = []
        for job, _state in found[start : start + SLICE]:
            state = state_of(hub, job)
            if state is None or (not named and not order.kill and state is State.WAITING):
                continue
            if is_live(state):
                refused.append(Refusal(job, f"job {job} is {state.value}: rm --kill ends it first"))
            else:
                rows.append((job, state))
        forget(hub, rows)
        gone += [job for job, _state in rows]
        await asyncio.sleep(0)
    hub.database.sync()
    hub.events.touch()
    hub.pulse.poke()
    return Changed(ids=gone, refused=refused if named else [])


async def _kill(hub: Hub, jobs: list[int]) -> None:
    """End trees, and return when they have ended."""
    with hub.database.transaction(durable=True):
        for job in jobs:
            hub.jobs.mark_ending(job, REASON)
    reach("rm-ending")
    for job in jobs:
        running = hub.running(job)
        if running is not None:
            hub.engine.kill(running, REASON)
    hub.pulse.poke()
    for job in jobs:
        while hub.running(job) is not None:
            await hub.events.changed_since(hub.events.version)


def forget(hub: Hub, rows: list[tuple[int, State]]) -> None:
    """Delete jobs from the record, then the files that are ours: logs by id, scripts."""
    if not rows:
        return
    files = []
    for job, _state in rows:
        facts = hub.jobs.facts(job)
        if facts.log is None and facts.run_dir is None:
            files += [log_path(hub.home, facts, number + 1) for number in range(facts.attempt)]
        if facts.form == "script":
            files.append(os.path.join(hub.home, "scripts", str(job)))
    with hub.database.transaction():
        hub.jobs.remove(rows)
    reach("rm-committed")
    for path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)
