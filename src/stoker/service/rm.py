"""`rm`: removes jobs with their logs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable

import msgspec

from stoker.core.lifecycle import State, is_live, is_pending
from stoker.engine.context import QueueContext
from stoker.engine.launch_spec import checkpoint_folder, is_script, own_log_path, script_path
from stoker.failpoints import reach
from stoker.service.bulk_change import SLICE
from stoker.service.job_selection import find
from stoker.service.kill import REASON
from stoker.service.pending_states import settle_dependants
from stoker.store.job_queries import state_of
from stoker.store.queue_jobs import Facts
from stoker.wire import Changed, Refusal, Remove


async def rm(context: QueueContext, order: Remove) -> Changed:
    """Remove ended and waiting jobs with their logs; with `kill` also running jobs, once they have ended."""
    found = [job for job, _state in find(context, order, one_of_name=True)]
    named = order.ids is not None
    gone: list[int] = []
    if order.kill:
        # Waiting jobs go first: they would start on the slots of those that are killed.
        gone += await _forget_those(context, found, is_pending)
        await _kill(
            context,
            [job for job in found if is_live(state_of(context.database, job) or State.DONE)],
        )
    # Waiting jobs go only if they are selected by id or state, or with `kill`.
    meant = named or order.kill or any(map(is_pending, order.states))
    gone += await _forget_those(
        context, found, lambda state: not is_live(state) and (meant or not is_pending(state))
    )
    refused = [
        Refusal(job, f"job {job} is {state.value}: rm --kill ends it first")
        for job in (found if named else ())
        if (state := state_of(context.database, job)) is not None
    ]
    warning = context.database.sync()
    context.events.touch()
    context.driver.poke()
    return Changed(ids=sorted(gone), refused=refused, notice=warning)


async def _forget_those(
    context: QueueContext, jobs: list[int], goes: Callable[[State], bool]
) -> list[int]:
    gone: list[int] = []
    for start in range(0, len(jobs), SLICE):
        states = [(job, state_of(context.database, job)) for job in jobs[start : start + SLICE]]
        rows = [(job, state) for job, state in states if state is not None and goes(state)]
        forget(context, rows)
        gone += [job for job, _state in rows]
        await asyncio.sleep(0)
    return gone


async def _kill(context: QueueContext, jobs: list[int]) -> None:
    """Kill running jobs, and return when they have ended."""
    with context.database.transaction(durable=True):
        for job in jobs:
            context.jobs.mark_ending(job, REASON)
    reach("rm-ending")
    for job in jobs:
        running = context.running(job)
        if running is not None:
            context.engine.termination.kill(running, REASON)
    context.driver.poke()
    for job in jobs:
        while context.running(job) is not None:
            await context.events.changed_since(context.events.version)


def forget(context: QueueContext, rows: list[tuple[int, State]]) -> None:
    """Delete jobs from the database, then their files in the home: logs, scripts, checkpoints.

    The list of files is recorded with the deletion, so that a restart finishes it after a crash.
    """
    if not rows:
        return
    files = [_files_of(context.jobs.facts(job)) for job, _state in rows]
    with context.database.transaction():
        context.jobs.note_removal(rows[0][0], msgspec.json.encode(files))
        for job, state in rows:
            context.pending.unlink(job)
            if state is State.DONE:
                context.pending.settle_need(job)
        context.jobs.remove(rows)
        places = context.engine.retry_policy.checkpoints
        for job, _state in rows:
            settle_dependants(context, job)
            if places is not None:
                places.forget(job)
    reach("rm-committed")
    for each in files:
        _remove(context.home, each)
    with context.database.transaction():
        context.jobs.forget_removal(rows[0][0])


def finish_removals(context: QueueContext) -> None:
    """Remove the files of jobs whose deletion an earlier daemon did not finish."""
    for first, note in context.jobs.removals():
        for each in msgspec.json.decode(note, type=list[_Files]):
            _remove(context.home, each)
        with context.database.transaction():
            context.jobs.forget_removal(first)


class _Files(msgspec.Struct, frozen=True, array_like=True):
    """The files of a job in the home, besides its folder of checkpoints."""

    job: int
    logs: int
    has_script: bool


def _files_of(facts: Facts) -> _Files:
    has_logs = facts.log is None and facts.run_dir is None
    return _Files(facts.id, facts.attempt if has_logs else 0, is_script(facts))


def _remove(home: str, files: _Files) -> None:
    paths = [own_log_path(home, files.job, number + 1) for number in range(files.logs)]
    if files.has_script:
        paths.append(script_path(home, files.job))
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    shutil.rmtree(checkpoint_folder(home, files.job), ignore_errors=True)
