"""A supervisor that goes on with the jobs of an earlier one, and remembers every attempt for its client."""

from __future__ import annotations

import os
import signal
import time

from stoker import failpoints
from stoker.supervisor import process_tree, reports
from stoker.supervisor.adoption import UNWATCHED, find_orphans
from stoker.supervisor.base import Supervisor
from stoker.supervisor.journal import Ending, JournalStory, Record, Refusal, Start, lose_line
from stoker.supervisor.lease_file import CUT_OFF, PARTING, LeaseFile
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S
from stoker.supervisor.messages import CutAttempt
from stoker.supervisor.orphans import Leftover, OrphanWatch
from stoker.supervisor.slot_queues import Attempt

_COMPACT_BYTES = 16 << 10 if failpoints.is_armed else 4 << 20  # so that a test gets there too


class RememberingSupervisor(Supervisor):
    """Keeps a record of every attempt in the journal, and watches those that it did not start itself."""

    lets_linger = True

    def __init__(self, name: str, boot: str, lease_file: LeaseFile | None = None) -> None:
        super().__init__()
        self.take_name(name)
        self.lease_file = lease_file
        self.cut_off: dict[str, str] = {}  # why
        self.boot = boot
        self.names = {name}
        self.records: dict[str, Record] = {}
        self.orphan_watch = OrphanWatch(self.poll)
        self.ordered: set[str] = set()
        self.ends_all = False
        self.compact_bytes = _COMPACT_BYTES

    def take_over(self, story: JournalStory) -> None:
        """Go on where the journal ends: watch what lives on, and make up for ends that nobody saw."""
        self.names |= story.names
        found = find_orphans(story, self.boot)
        self.records = found.records
        for key, orphan in found.leftovers.items():
            record = self.records.get(key)
            is_open = record is not None and not record.is_over
            ending = record.exit if record is not None else None
            self.orphan_watch.leftovers[key] = Leftover(orphan, is_open=is_open, ending=ending)
            if is_open:
                self.pids[key] = 0  # its number may be another's by now
                self.sweep_at = 0.0
        for key, orphan in found.living.items():
            self.orphan_watch.watch(key, orphan)
            self.pids[key] = orphan.pid
        self.sweep_soon()
        if not self.compact():
            self.journal.note(self.summary())

    def look_after(self) -> None:
        """Record ends, and end what runs for a head that may have given it up."""
        super().look_after()
        if self.left_s() == 0:
            for key in [*self.pids]:
                self.cut(key, CUT_OFF)

    def left_s(self) -> float | None:
        """For how long jobs may run without word from their head; None if for ever, or none is running."""
        if self.lease_file is None or not self.pids.keys() - self.cut_off.keys():
            return None
        return self.lease_file.left_s()

    def why_cut(self, key: str) -> str | None:
        """Why an attempt has been ended for its machine's sake, by us or by the guard; None if it has not."""
        is_over = self.lease_file is not None and not self.lease_file.left_s()
        return self.cut_off.get(key) or (CUT_OFF if is_over else None)

    def on_cut(self, order: CutAttempt) -> None:
        """End an attempt for its machine's sake."""
        self.cut(order.key, order.reason)

    def cut(self, key: str, reason: str) -> None:
        """End an attempt for its machine's sake, and not for anything that it did."""
        if key in self.pids:
            self.cut_off[key] = reason
            self.kill(key)

    def spawn(self, attempt: Attempt) -> Start:
        """Make a process; in a folder as it is now, for it may have been replaced, or be unmounted later."""
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
            place=attempt.place.label if attempt.taken else None,
        )
        self.ordered.discard(attempt.key)
        return start

    def refuse(self, attempt: Attempt, refusal: Refusal) -> None:
        """Remember a refusal."""
        super().refuse(attempt, refusal)
        self.records[attempt.key] = Record(refusal=refusal)
        self.ordered.discard(attempt.key)

    def note_exit(self, key: str, ending: Ending) -> None:
        """Remember how the first process of an attempt ended that is not over."""
        super().note_exit(key, ending)
        self.records[key] = self.records[key]._replace(exit=ending)

    def note_end(self, key: str, ending: Ending) -> None:
        """Remember an end; how one would have ended that was cut off, nobody knows."""
        reason = self.why_cut(key)
        if reason is not None and ending.status & 0x7F == signal.SIGKILL:
            self.note_loss(key, reason)
            return
        super().note_end(key, ending)
        self.cut_off.pop(key, None)
        self.records[key] = self.records[key]._replace(ending=ending)

    def note_loss(self, key: str, reason: str) -> None:
        """Remember that an attempt is over, and that nobody knows how it ended."""
        self.cut_off.pop(key, None)
        self.records[key] = self.records[key]._replace(loss=reason)
        self.journal.note(lose_line(key, reason))
        self.tell(reports.lost(key, reason, reason in PARTING))

    def end_orphan(self, key: str) -> None:
        """The first process of an earlier supervisor's job is over; others may have seen how."""
        failpoints.reach("supervisor-orphan-ended")
        status = self.orphan_watch.mourn(key)
        left = self.orphan_watch.leftovers[key]
        if (kill_at := self.kill_at.get(key)) is not None:
            left.grant(kill_at)
        if status is not None:
            left.ending = Ending(status, time.time_ns() // 1000, 0, 0)
            self.note_exit(key, left.ending)
        self.sweep_at = 0.0

    def conclude_orphan(self, key: str, left: Leftover) -> None:
        """Nothing is left of an earlier supervisor's job, or only what cannot be killed."""
        if not left.is_open:
            return
        del self.pids[key]
        self.kill_at.pop(key, None)
        if left.ending is None:
            self.note_loss(key, self.why_cut(key) or UNWATCHED)
        else:
            at_us = time.time_ns() // 1000
            self.note_end(key, left.ending._replace(at_us=at_us, leftovers=left.names))
            self.wire.urgent = True

    def strike(self, key: str) -> None:
        """Kill a job's first process at once, and its group where that is surely its own."""
        if key in self.orphan_watch.living:
            self.orphan_watch.strike(key)
        elif key not in self.orphan_watch.leftovers:
            super().strike(key)

    def signal_tree(self, snapshot: process_tree.Snapshot, key: str, signum: int) -> bool:
        """Signal every living process of a job; whether there is any."""
        if key in self.orphan_watch.living or key in self.orphan_watch.leftovers:
            return self.orphan_watch.signal(snapshot, key, signum)
        return super().signal_tree(snapshot, key, signum)

    def end_within(self, key: str, grace_s: float) -> None:
        """Kill what is left of a job when its grace is over."""
        super().end_within(key, grace_s)
        if (left := self.orphan_watch.leftovers.get(key)) is not None:
            left.grant(self.kill_at[key])

    def sweep(self) -> None:
        """Look also after what earlier supervisors have left."""
        super().sweep()
        due = self.sweep_at
        for key in self.orphan_watch.ended():
            self.end_orphan(key)
        over, again_at = self.orphan_watch.sweep()
        for key, left in over:
            self.conclude_orphan(key, left)
        self.sweep_at = min(due, again_at)

    def strays(self) -> set[int]:
        """Living children that are left over; those that may linger count only when all must end."""
        found = super().strays()
        if self.ends_all:
            return found
        return {pid for pid in found if not process_tree.marks_of(pid).lingers}

    def slay_all(self) -> None:
        """Kill every tree, also those of earlier supervisors."""
        self.ends_all = True
        super().slay_all()
        give_up_at = time.monotonic() + 2 * LEFTOVER_GRACE_S
        while self.orphan_watch and time.monotonic() < give_up_at:
            snapshot = process_tree.Snapshot()
            for key in [*self.orphan_watch.living, *self.orphan_watch.leftovers]:
                self.orphan_watch.signal(snapshot, key, signal.SIGKILL)
            self.sweep()
            time.sleep(0.001)

    def summary(self) -> str:
        """What the journal must at least say."""
        names = sorted(self.names, key=lambda name: name == self.name)
        return "".join(
            [
                *(f"boot {self.boot} {name} .\n" for name in names),
                *(record.lines(key) for key, record in self.records.items()),
            ]
        )

    def compact(self) -> bool:
        """Rewrite the journal with what is still of interest; False if the disk is too full for that."""
        try:
            self.journal.rewrite(self.summary())
        except OSError:
            return False
        finally:
            self.compact_bytes = max(_COMPACT_BYTES, 2 * self.journal.size)
        return True
