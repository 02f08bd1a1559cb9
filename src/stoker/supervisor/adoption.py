"""Search for the jobs of a killed supervisor, by its journal and the process table."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Sequence
from typing import NamedTuple

from stoker.supervisor import process_tree
from stoker.supervisor.exit_file import Exit
from stoker.supervisor.journal import JournalContents, Loss, Record
from stoker.supervisor.orphans import Orphan

RESTARTED = "the machine was restarted while it ran"
UNWATCHED = "its exit status is not known: the process that watched it was killed"

_SPARE_FDS = 64
_EXECVE_TIMEOUT_S = 0.5
_MIN_LOOKS = 3
_LOOK_PERIOD_S = 0.005


class Findings(NamedTuple):
    """Attempts that still run, records of all attempts, and processes that ended attempts have left."""

    living: dict[str, Orphan]
    records: dict[str, Record]
    leftovers: dict[str, Orphan]


def find_orphans(contents: JournalContents, boot: str, exits: Sequence[Exit] = ()) -> Findings:
    """Search for every attempt without an end, and complete its record.

    `exits` tell how first processes have ended while no supervisor watched them.
    """
    snapshot, marked = _find_marked(contents)
    found = Findings({}, dict(contents.records), {})
    for key, unwatched in contents.records.items():
        if unwatched.outcome is not None:
            continue
        record = found.records[key] = _add_exit(unwatched, exits)
        cookies = {f"{name}:{key}" for name in contents.names}
        known = record if record.pid else _find_first(record, marked.get(key, set()), snapshot)
        orphan = _verify(known, cookies, boot) if known else None
        if orphan is None and key in marked:
            pass  # its outcome is recorded when the last of these processes is gone
        elif orphan is None and record.exit is not None:
            found.records[key] = record._replace(outcome=record.exit)
        elif orphan is None:
            reason = UNWATCHED if record.boot == boot else RESTARTED
            found.records[key] = record._replace(outcome=Loss(reason))
        else:
            found.living[key] = orphan
            found.records[key] = _complete(record, orphan)
    for key in marked.keys() - found.living.keys():
        found.leftovers[key] = Orphan({f"{name}:{key}" for name in contents.names})
    return found


def _find_marked(contents: JournalContents) -> tuple[process_tree.Snapshot, dict[str, set[int]]]:
    """Return the process table, and the processes in it by the attempt in their cookies.

    A process shows no cookie while it is in execve. An attempt with a known pid is found anyway. One that
    was only announced would be taken for dead, so the search is repeated.
    """
    announced = {
        key
        for key, record in contents.records.items()
        if record.outcome is None and record.pid is None
    }
    give_up_at = time.monotonic() + _EXECVE_TIMEOUT_S
    looks = 0
    while True:
        looks += 1
        snapshot = process_tree.Snapshot()
        marked: dict[str, set[int]] = {}
        for name in contents.names:
            prefix = f"{name}:"
            for cookie, pids in snapshot.by_cookie(prefix).items():
                marked.setdefault(cookie.removeprefix(prefix), set()).update(pids)
        if announced <= marked.keys() or not snapshot.has_blank_leader():
            break
        # Other processes never had an environment. On a busy machine one look may take long.
        if looks >= _MIN_LOOKS and time.monotonic() > give_up_at:
            break
        time.sleep(_LOOK_PERIOD_S)
    return snapshot, marked


def _add_exit(record: Record, exits: Sequence[Exit]) -> Record:
    """Add how a job's first process ended while no supervisor watched it.

    SIGKILL says nothing about the job: the end of a lease, or of the machine, may have been the reason.
    """
    if record.exit is not None or record.pid is None:
        return record
    for each in exits:
        if (each.boot, each.pid) == (record.boot, record.pid) and _is_timely(record, each.ticks):
            ending = each.ending.killed_with(record.over_mem_bytes)
            is_known = ending.over_mem_bytes or ending.status & 0x7F != signal.SIGKILL
            return record._replace(exit=ending) if is_known else record
    return record


def _find_first(record: Record, pids: set[int], snapshot: process_tree.Snapshot) -> Record | None:
    """Add a job's first process to its record: it leads a session, and its parent is outside the job."""
    for pid in sorted(pids):
        process = snapshot.table[pid]
        if process.session == pid and process.parent not in pids:
            return record._replace(pid=pid, ticks=process.ticks, until=process.ticks)
    return None


def _verify(record: Record, cookies: set[str], boot: str) -> Orphan | None:
    """Watch a process if it is the one that was started. Its pid alone proves nothing."""
    pid = record.pid
    assert pid is not None
    try:
        fd = _watch(pid)
    except ProcessLookupError:
        return None
    now = process_tree.boot_ticks()
    fields = process_tree.stat_fields(pid)
    if fields:
        session, ticks = int(fields[3]), int(fields[19])
        orphan = Orphan(cookies, pid, ticks, fd)
        carried = process_tree.read_marks(pid).cookies
        if carried:
            is_it = not cookies.isdisjoint(carried) and process_tree.is_own(pid)
        else:  # it has ended or has no environment: then only the time of its start counts
            is_it = record.boot == boot and session == pid and _is_timely(record, ticks)
        if is_it:
            orphan.held_ticks = now
            return orphan
    if fd >= 0:
        os.close(fd)
    return None


def _watch(pid: int) -> int:
    """Open a pidfd; return -1 if too few descriptors would be left for everything else."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return -1
    if fd > soft - _SPARE_FDS:
        os.close(fd)
        return -1
    return fd


def _is_timely(record: Record, ticks: int) -> bool:
    if record.ticks is None or record.until is None:
        return False
    return record.ticks - 1 <= ticks <= record.until + 1


def _complete(record: Record, orphan: Orphan) -> Record:
    if record.pid is not None and record.until is not None and record.at_us is not None:
        return record
    at_us = _calendar_us(orphan.ticks)
    return record._replace(pid=orphan.pid, ticks=orphan.ticks, until=orphan.ticks, at_us=at_us)


def _calendar_us(ticks: int) -> int:
    """Convert a tick to calendar time, rounded up: no job may seem to start before its GPU was free."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks + 1) / process_tree.TICKS_PER_S
    return time.time_ns() // 1000 - max(0, int(age_s * 1e6))
