"""Keeps the house small: old jobs and logs go, and logs that grow without bound are cut."""

from __future__ import annotations

import asyncio
import os
import shutil
import time

from stoker.core.lifecycle import State
from stoker.engine.hub import Hub
from stoker.engine.service.rm import forget

_PRUNE_PERIOD_S = 3600.0
_CAP_PERIOD_S = 5.0
_SLICE = 200
_OLD_SNAPSHOT_S = 86400.0


async def prune_for_ever(hub: Hub) -> None:
    """Forget what is older, or more, than the settings keep; a little at a time."""
    while True:
        await prune(hub)
        await asyncio.sleep(_PRUNE_PERIOD_S)


async def prune(hub: Hub) -> None:
    """Forget ended jobs beyond `keep.days` and `keep.jobs`; failures among them are told."""
    oldest_us = (time.time() - hub.config.count("keep.days") * 86400) * 1e6
    undone = 0
    while True:
        tally = hub.jobs.tally()
        ended = sum(tally.get(state, 0) for state in _ENDED)
        surplus = max(0, ended - hub.config.count("keep.jobs"))
        rows = _oldest(hub, oldest_us, surplus)
        forget(hub, rows)
        undone += sum(state is not State.DONE for _job, state in rows)
        if len(rows) < _SLICE:
            break
        await asyncio.sleep(0.01)
    if undone:
        hub.publisher.on_notice(
            f"forgot {undone} old jobs that had not succeeded (stoker config keep.days)"
        )
    hub.jobs.forget_submissions()
    await _prune_snapshots(hub)


_ENDED = (State.DONE, State.FAILED, State.KILLED, State.LOST, State.SKIPPED)


def _oldest(hub: Hub, oldest_us: float, surplus: int) -> list[tuple[int, State]]:
    """The jobs to forget next: too old, or too many; what failed is the last to go for its number."""
    sql = (
        "SELECT id, state FROM job WHERE submission IS NOT NULL AND ended_at_us IS NOT NULL AND {}"
        " ORDER BY ended_at_us LIMIT ?"
    )
    old = hub.database.execute(sql.format("ended_at_us < ?"), (oldest_us, _SLICE)).fetchall()
    if not old and surplus:
        done = sql.format("state IN ('done', 'killed', 'skipped')")
        old = hub.database.execute(done, (min(surplus, _SLICE),)).fetchall()
    return [(job, State(state)) for job, state in old]


async def _prune_snapshots(hub: Hub) -> None:
    """Delete working trees that no job can run from any more."""
    folder = os.path.join(hub.home, "snapshots")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    rows = hub.database.execute("SELECT DISTINCT snapshot FROM submission WHERE snapshot NOTNULL")
    used = {snapshot.partition("/")[0] for (snapshot,) in rows}
    for name in set(names) - used:
        path = os.path.join(folder, name)
        # One that was just taken belongs to a submission that is still on its way.
        if time.time() - os.lstat(path).st_mtime > _OLD_SNAPSHOT_S:
            await asyncio.to_thread(shutil.rmtree, path, True)


async def cap_logs_for_ever(hub: Hub) -> None:
    """Cut the logs of running jobs that outgrow `log.cap`; sleeps while there is no cap or no job."""
    while True:
        cap = hub.config.log_cap_bytes
        running = list(hub.engine.board.running.values()) if cap else []
        for each in running:
            if each.log is not None and cap is not None:
                cut_log(each.log, cap)
        if running:
            await asyncio.sleep(_CAP_PERIOD_S)
        else:
            await hub.events.changed_since(hub.events.version)
            await asyncio.sleep(1.0)


def cut_log(path: str, cap_bytes: int) -> None:
    """Cut the middle out of a log that has outgrown its cap, and say so in it.

    The job goes on writing at its end; what it writes in this very moment may be lost too.
    """
    try:
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= cap_bytes:
                return
            head, tail = cap_bytes // 4, cap_bytes // 4
            file.seek(size - tail)
            rest = file.read()
            os.ftruncate(file.fileno(), head)
            marker = f"\n[stoker: {size - head - tail} bytes cut here: log.cap is {cap_bytes}]\n"
        with open(path, "ab") as file:
            file.write(marker.encode() + rest)
    except OSError:
        return  # it was removed, or belongs to somebody else by now
