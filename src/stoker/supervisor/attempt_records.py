"""Supervisor that adopts the jobs of an earlier one, and keeps a record of every attempt for its client."""

from __future__ import annotations

import os
import signal
import time

from stoker import failpoints
from stoker.supervisor import messages, process_tree, reports
from stoker.supervisor.adoption import UNWATCHED, find_orphans
from stoker.supervisor.base import Supervisor
from stoker.supervisor.exit_file import ExitReader
from stoker.supervisor.journal import (
    Ending,
    JournalContents,
    Loss,
    Record,
    Refusal,
    Start,
    limit_line,
    lose_line,
)
from stoker.supervisor.lease_file import CUT_OFF, NODE_REASONS, LeaseFile
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.orphans import Leftover, Orphan, OrphanWatch
from stoker.supervisor.slot_queues import Attempt

_ON_CUT, _FINISH = process_tree.ON_CUT.encode(), process_tree.FINISH.encode()
_COMPACT_BYTES = 16 << 10 if failpoints.is_armed else 4 << 20  # small for fault tests


class RememberingSupervisor(Supervisor):
    """Keeps a record of every attempt, and watches the attempts of earlier supervisors."""

    lets_linger = True

    def __init__(self, name: str, boot: str, lease_file: LeaseFile | None = None) -> None:
        super().__init__()
        self.set_name(name)
        self.lease_file = lease_file
        self.cut_off: dict[str, str] = {}  # the reason by attempt
        self.finishing: set[str] = set()  # attempts that a cut-off from the head does not end
        self.boot = boot
        self.names = {name}
        self.records: dict[str, Record] = {}
        self.orphan_watch = OrphanWatch(self.poll)
        self.exits = ExitReader("")
        self.ordered: set[str] = set()
        self.ends_all = False
        self.compact_bytes = _COMPACT_BYTES

    def take_over(self, contents: JournalContents, exits: ExitReader) -> None:
        """Continue after an earlier supervisor: watch jobs that still run, and record ends that it missed."""
        self.names |= contents.names
        self.exits = exits
        found = find_orphans(contents, self.boot, exits.read())
        self.records = found.records
        for key, orphan in found.leftovers.items():
            record = self.records.get(key)
            is_open = record is not None and record.outcome is None
            ending = record.exit if record is not None else None
            self.orphan_watch.leftovers[key] = Leftover(orphan, is_open=is_open, ending=ending)
            if is_open:
                self.pids[key] = 0  # another process may have its pid by now
                self.sweep_at = 0.0
        for key, orphan in found.living.items():
            self.orphan_watch.watch(key, orphan)
            self.pids[key] = orphan.pid
            if process_tree.read_marks(orphan.pid).finishes:
                self.finishing.add(key)
            self._limit_orphan(key, orphan)
        self.sweep_soon()
        if self.compact():
            self.exits.remove()
        else:
            self.journal.note(self.summary())

    def _limit_orphan(self, key: str, orphan: Orphan) -> None:
        """Go on limiting the RAM of a job, or finish the kill that the earlier supervisor began."""
        record = self.records[key]
        if record.over_mem_bytes:
            self.limits.used[key] = record.over_mem_bytes
            self.kill(key)
        else:
            self.limits.adopt(key, record.mem_bytes, orphan.pid, orphan.cookies)

    def on_limit(self, order: messages.LimitAttempt) -> None:
        """Change the RAM limit of an attempt that was started with one."""
        key, orphan = order.key, self.orphan_watch.living.get(order.key)
        if key not in self.pids or self.records[key].over_mem_bytes:
            return
        self.records[key] = self.records[key]._replace(mem_bytes=order.mem_bytes)
        self.journal.note(limit_line(key, order.mem_bytes))
        if not self.limits.change(key, order.mem_bytes) and orphan is not None:
            self._limit_orphan(key, orphan)

    def on_over_memory(self, key: str, used_bytes: int) -> None:
        """Kill an attempt that uses more RAM than it may; the journal has the reason."""
        self.records[key] = self.records[key]._replace(over_mem_bytes=used_bytes)
        super().on_over_memory(key, used_bytes)

    def do_due_work(self) -> None:
        """Record ends, and end all jobs when the lease of the node has expired."""
        super().do_due_work()
        if self.left_s() == 0:
            for key in self.pids.keys() - self.finishing:
                self.cut(key, CUT_OFF)

    def left_s(self) -> float | None:
        """Return how long jobs may run without contact to the head; None if there is no limit or no job."""
        if self.lease_file is None or not self.pids.keys() - self.cut_off.keys() - self.finishing:
            return None
        return self.lease_file.left_s()

    def why_cut(self, key: str) -> str | None:
        """Return why this supervisor or the lease watchdog has ended an attempt; None if neither has."""
        if key in self.finishing or self.lease_file is None:
            return self.cut_off.get(key)
        return self.cut_off.get(key) or (None if self.lease_file.left_s() else CUT_OFF)

    def cut(self, key: str, reason: str) -> None:
        """End an attempt because of its node, and report it as lost for this reason."""
        if key in self.pids:
            self.cut_off[key] = reason
            self.kill(key)

    def spawn(self, attempt: Attempt) -> Start:
        """Start a process. Enters the folder anew each time, because it may be replaced or unmounted."""
        try:
            start = super().spawn(attempt)
        finally:
            os.chdir("/")
            self.cwd = ""
        self.records[attempt.key] = Record(
            pid=start.pid,
            ticks=start.ticks,
            until=start.until,
            at_us=start.at_us,
            boot=self.boot,
            slot=attempt.slot.label if attempt.taken else None,
            mem_bytes=attempt.mem_bytes,
        )
        self.ordered.discard(attempt.key)
        if attempt.context.env.get(_ON_CUT) == _FINISH:
            self.finishing.add(attempt.key)
        return start

    def refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        """Record that an attempt cannot be started."""
        super().refuse(attempt, refusal)
        self.records[attempt.key] = Record(outcome=refusal)
        self.ordered.discard(attempt.key)

    def record_exit(self, key: str, ending: Ending) -> None:
        """Record the end of an attempt's first process, while others of its processes run."""
        super().record_exit(key, ending)
        self.records[key] = self.records[key]._replace(exit=ending)

    def record_end(self, key: str, ending: Ending) -> None:
        """Record the end of an attempt; one that was cut off is lost instead."""
        reason = self.why_cut(key)
        if reason is not None and ending.status & 0x7F == signal.SIGKILL:
            self.record_loss(key, reason)
            return
        super().record_end(key, ending)
        self.cut_off.pop(key, None)
        self.finishing.discard(key)
        self.records[key] = self.records[key]._replace(outcome=ending)

    def record_loss(self, key: str, reason: str) -> None:
        """Record that an attempt is over with an unknown exit status."""
        self.cut_off.pop(key, None)
        self.finishing.discard(key)
        self.records[key] = self.records[key]._replace(outcome=Loss(reason))
        self.journal.note(lose_line(key, reason))
        self.report(reports.lost(key, reason, reason in NODE_REASONS))

    def end_orphan(self, key: str) -> None:
        """Record the end of the first process of an adopted job."""
        failpoints.reach("supervisor-orphan-ended")
        status = self.orphan_watch.become_leftover(key)
        left = self.orphan_watch.leftovers[key]
        if (kill_at := self.kill_at.get(key)) is not None:
            left.set_grace(kill_at)
        if status is not None:
            left.ending = Ending(status, time.time_ns() // 1000, 0, 0)
        elif found := self.exits.find(self.boot, left.orphan.pid, left.orphan.ticks):
            left.ending = found.ending
        if left.ending is not None:
            self.record_exit(key, left.ending)
        self.sweep_at = 0.0

    def end_leftover(self, key: str, left: Leftover) -> None:
        """End an adopted attempt of which no process is left, or only ones that cannot be killed."""
        if not left.is_open:
            return
        del self.pids[key]
        self.kill_at.pop(key, None)
        at_us = time.time_ns() // 1000
        ending = self.limits.conclude(key, left.ending or Ending(0, 0, 0, 0))
        if left.ending is None:
            self.record_loss(key, self.why_cut(key) or UNWATCHED)
        else:
            self.record_end(key, ending._replace(at_us=at_us, leftovers=left.names))
            self.protocol.urgent = True

    def kill_group(self, key: str) -> None:
        """Kill a job's first process at once, and its process group if that is certainly its own."""
        if key in self.orphan_watch.living:
            self.orphan_watch.kill_first(key)
        elif key not in self.orphan_watch.leftovers:
            super().kill_group(key)

    def signal_tree(
        self, snapshot: process_tree.Snapshot, key: str, signum: int, *, main_only: bool = False
    ) -> bool:
        """Signal every living process of a job, or its main process. Returns whether there is any."""
        if key in self.orphan_watch.living or key in self.orphan_watch.leftovers:
            return self.orphan_watch.signal(snapshot, key, signum, main_only=main_only)
        return super().signal_tree(snapshot, key, signum, main_only=main_only)

    def end_within(self, key: str, grace_s: float) -> None:
        """Kill what is left of a job after a grace."""
        super().end_within(key, grace_s)
        if (left := self.orphan_watch.leftovers.get(key)) is not None:
            left.set_grace(self.kill_at[key])

    def sweep(self) -> None:
        """Kill what is due, also of adopted jobs, and schedule the next sweep."""
        super().sweep()
        due = self.sweep_at
        for key in self.orphan_watch.ended():
            self.end_orphan(key)
        over, again_at = self.orphan_watch.sweep()
        for key, left in over:
            self.end_leftover(key, left)
        self.sweep_at = min(due, again_at)

    def strays(self) -> set[int]:
        """Return the living children that are left over; those that may linger only if all must end."""
        found = super().strays()
        if self.ends_all:
            return found
        return {pid for pid in found if not process_tree.read_marks(pid).lingers}

    def kill_all(self) -> None:
        """Kill every process tree, also those of adopted jobs."""
        self.ends_all = True
        super().kill_all()
        give_up_at = time.monotonic() + 2 * LEFTOVER_GRACE_S
        while self.orphan_watch and time.monotonic() < give_up_at:
            snapshot = process_tree.Snapshot()
            for key in [*self.orphan_watch.living, *self.orphan_watch.leftovers]:
                self.orphan_watch.signal(snapshot, key, signal.SIGKILL)
            self.sweep()
            time.sleep(0.001)

    def summary(self) -> str:
        """Return the lines that the journal must have at least."""
        names = sorted(self.names, key=lambda name: name == self.name)
        return "".join(
            [
                *(f"boot {self.boot} {name} .\n" for name in names),
                *(record.lines(key) for key, record in self.records.items()),
            ]
        )

    def compact(self) -> bool:
        """Rewrite the journal with the current records only; False if the disk is too full."""
        try:
            self.journal.rewrite(self.summary())
        except OSError:
            return False
        finally:
            self.compact_bytes = max(_COMPACT_BYTES, 2 * self.journal.size)
        return True
