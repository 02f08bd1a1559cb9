"""After a supervisor was killed: which of its jobs live on, by the journal and the process table."""

from __future__ import annotations

import os
import resource
import time
from typing import NamedTuple

from stoker.supervisor import process_tree
from stoker.supervisor.journal import JournalStory, Record
from stoker.supervisor.orphans import Orphan

RESTARTED = "the machine was restarted while it ran"
UNWATCHED = "its exit status is not known: the process that watched it was killed"

_SPARE_FDS = 64
_EXCHANGE_PATIENCE_S = 0.5
_FEWEST_LOOKS = 3
_LOOK_PERIOD_S = 0.005


class Findings(NamedTuple):
    """What became of the attempts whose end is not in the journal, and leftovers of other attempts."""

    living: dict[str, Orphan]
    records: dict[str, Record]
    leftovers: dict[str, Orphan]


def find_orphans(story: JournalStory, boot: str) -> Findings:
    """Look for every attempt without an end; its record says what is known now."""
    snapshot, bearers = _look_for_all(story)
    found = Findings({}, dict(story.records), {})
    for key, record in story.records.items():
        if record.is_over:
            continue
        cookies = {f"{name}:{key}" for name in story.names}
        known = record if record.pid else _seen(record, bearers.get(key, set()), snapshot)
        orphan = _verify(known, cookies, boot) if known else None
        if orphan is None and key in bearers:
            pass  # what becomes of it is told when the last of them is gone
        elif orphan is None and record.exit is not None:
            found.records[key] = record._replace(ending=record.exit)
        elif orphan is None:
            reason = UNWATCHED if record.boot == boot else RESTARTED
            found.records[key] = record._replace(loss=reason)
        else:
            found.living[key] = orphan
            found.records[key] = _complete(record, orphan)
    for key in bearers.keys() - found.living.keys():
        found.leftovers[key] = Orphan({f"{name}:{key}" for name in story.names})
    return found


def _look_for_all(story: JournalStory) -> tuple[process_tree.Snapshot, dict[str, set[int]]]:
    """The process table, and who in it carries the cookie of which attempt.

    A process that is just exchanging its program shows no cookie. Of an attempt whose pid is known
    nothing depends on that; one that was only announced would be taken for dead, so look again.
    """
    announced = {
        key for key, record in story.records.items() if not record.is_over and record.pid is None
    }
    give_up_at = time.monotonic() + _EXCHANGE_PATIENCE_S
    looks = 0
    while True:
        looks += 1
        snapshot = process_tree.Snapshot()
        bearers: dict[str, set[int]] = {}
        for name in story.names:
            prefix = f"{name}:"
            for cookie, pids in snapshot.bearers(prefix).items():
                bearers.setdefault(cookie.removeprefix(prefix), set()).update(pids)
        if announced <= bearers.keys() or not snapshot.has_blank_leader():
            break
        # Something else has no environment, and never had. On a busy machine one look may take long.
        if looks >= _FEWEST_LOOKS and time.monotonic() > give_up_at:
            break
        time.sleep(_LOOK_PERIOD_S)
    return snapshot, bearers


def _seen(record: Record, bearers: set[int], snapshot: process_tree.Snapshot) -> Record | None:
    """A record with the first process of its job: it leads a session, its parent is none of the job's."""
    for pid in sorted(bearers):
        process = snapshot.table[pid]
        if process.session == pid and process.parent not in bearers:
            return record._replace(pid=pid, ticks=process.ticks, until=process.ticks)
    return None


def _verify(record: Record, cookies: set[str], boot: str) -> Orphan | None:
    """Watch a process, if it is the one that was started: its number alone proves nothing."""
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
        carried = process_tree.marks_of(pid).cookies
        if carried:
            is_it = not cookies.isdisjoint(carried) and process_tree.is_own(pid)
        else:  # it has ended, or shows no environment: then only the very moment of its start counts
            is_it = record.boot == boot and session == pid and _is_timely(record, ticks)
        if is_it:
            orphan.held_ticks = now
            return orphan
    if fd >= 0:
        os.close(fd)
    return None


def _watch(pid: int) -> int:
    """A descriptor that tells of a process's end; -1 if too few are left for everything else."""
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
    """When a tick was over by the calendar: rounded up, lest a job began before its GPU was free."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks + 1) / process_tree.TICKS_PER_S
    return time.time_ns() // 1000 - max(0, int(age_s * 1e6))
