"""Removes old jobs, logs and snapshots, and truncates logs that grow too large."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil

from stoker.core.lifecycle import State, is_final
from stoker.engine.context import QueueContext
from stoker.engine.framework_settings import jax_cache, remove_unused_programs
from stoker.engine.trusted_time import TrustedTime
from stoker.errors import StokerError
from stoker.service.rm import finish_removals, forget
from stoker.staging.node_cache import NodeCache
from stoker.store.prune import ended_before, forget_submissions, is_snapshot_used, oldest_ended

_PRUNE_PERIOD_S = 3600.0
_CAP_PERIOD_S = 5.0
_SLICE = 200
_PAUSE_S = 0.01
_OLD_SNAPSHOT_S = 86400.0
_GONE = ".gone-"
_NODE_CACHE_BYTES = 4 << 30


async def prune_for_ever(context: QueueContext) -> None:
    """Prune every hour."""
    clock = TrustedTime(context.database)
    while True:
        try:
            await prune(context, clock)
        except (StokerError, OSError) as error:
            context.engine.tell_once(f"cannot forget old jobs for now: {error}")
        await asyncio.sleep(_PRUNE_PERIOD_S)


async def prune(context: QueueContext, clock: TrustedTime | None = None) -> None:
    """Remove ended jobs beyond `keep.days` and `keep.jobs`; a notice tells of failed ones among them."""
    finish_removals(context)
    clock = clock or TrustedTime(context.database)
    now = clock.now()
    if clock.ahead_s:
        context.engine.tell_once(
            f"the clock is {clock.ahead_s / 86400:.0f} days ahead of what it was: nothing is forgotten"
            " for its age until the clock has stayed so for a day"
        )
    oldest_us = (now - context.config.value("keep.days") * 86400) * 1e6
    undone = 0
    while rows := _oldest(context, oldest_us):
        forget(context, rows)
        undone += sum(state not in (State.DONE, State.PRUNED) for _job, state in rows)
        await asyncio.sleep(_PAUSE_S)
    if undone:
        context.publisher.on_notice(
            f"forgot {undone} old jobs that had not succeeded (stoker config keep.days)"
        )
    forget_submissions(context.database)
    await _prune_snapshots(context, now)
    await _prune_checkpoints(context)
    node_cache = os.path.join(context.home, "node_cache")
    if os.path.isdir(node_cache):
        await asyncio.to_thread(NodeCache(node_cache).prune, _NODE_CACHE_BYTES)
    if (programs := jax_cache(os.environ)) is not None:
        await asyncio.to_thread(remove_unused_programs, programs)


_ENDED = tuple(state for state in State if is_final(state))


def _oldest(context: QueueContext, oldest_us: float) -> list[tuple[int, State]]:
    """Return the jobs to remove next: too old, or too many; of too many, failed ones last."""
    ended = sum(context.jobs.tally().get(state, 0) for state in _ENDED)
    surplus = max(0, ended - context.config.value("keep.jobs"))
    too_old = ended_before(context.database, oldest_us, _SLICE)
    return too_old or oldest_ended(context.database, min(surplus, _SLICE))


async def _prune_checkpoints(context: QueueContext) -> None:
    """Remove the empty checkpoint folders of jobs that are not running."""
    base = os.path.join(context.home, "checkpoints")
    for group in await asyncio.to_thread(_names_in, base):
        folder = os.path.join(base, group)
        names = [name for name in await asyncio.to_thread(_names_in, folder) if name.isdigit()]
        for start in range(0, len(names), _SLICE):
            # Not in a thread: a job could start between the check and the removal.
            live = {running.attempt.job for running in context.engine.slot_table.running.values()}
            for name in names[start : start + _SLICE]:
                if int(name) not in live:
                    with contextlib.suppress(OSError):
                        os.rmdir(os.path.join(folder, name))
            await asyncio.sleep(_PAUSE_S)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


async def _prune_snapshots(context: QueueContext, now: float) -> None:
    """Delete snapshots that no job can run from."""
    folder = os.path.join(context.home, "snapshots")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if not name.startswith(_GONE):
            # A new snapshot may belong to a submission that has not arrived yet.
            is_new = now - os.lstat(path).st_mtime < _OLD_SNAPSHOT_S
            if is_new or is_snapshot_used(context.database, name):
                continue
            # Renamed first: no job may start in a half-deleted snapshot.
            os.rename(path, os.path.join(folder, f"{_GONE}{name}"))
            path = os.path.join(folder, f"{_GONE}{name}")
        await asyncio.to_thread(shutil.rmtree, path, True)


async def cap_logs_for_ever(context: QueueContext) -> None:
    """Truncate the logs of running jobs that exceed `log.cap`; sleep while there is no cap or no job.

    Output that comes from a node is written at its own offset, so such a log is truncated when its job has
    ended.
    """
    before: set[str] = set()
    while True:
        cap, slot_table = context.config.log_cap_bytes, context.engine.slot_table
        running = slot_table.running.values() if cap else ()
        logs = {each.log for each in running if each.log is not None}
        far = {each.log for each in running if not slot_table.is_own(each.where)}
        for path in (logs | before) - far:  # also logs of jobs that have ended since the last round
            if cap is not None:
                # In a thread: the kept part may be large, and the disk slow.
                await asyncio.to_thread(cut_log, path, cap)
        before = logs
        if logs:
            await asyncio.sleep(_CAP_PERIOD_S)
        else:
            await context.events.changed_since(context.events.version)
            await asyncio.sleep(1.0)


def cut_log(path: str, cap_bytes: int) -> None:
    """Cut the middle out of a log that exceeds its cap, and leave a note there.

    The job continues to write at the end; output written during the cut may be lost.
    """
    try:
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= cap_bytes:
                return
            head, tail = cap_bytes // 4, cap_bytes // 4
            file.seek(size - tail)
            rest = file.read(cap_bytes)
            os.ftruncate(file.fileno(), head)
            marker = f"\n[stoker: {size - head - tail} bytes cut here: log.cap is {cap_bytes}]\n"
        with open(path, "ab") as file:
            file.write(marker.encode() + rest)
    except OSError:
        return  # it was removed, or belongs to another user now
