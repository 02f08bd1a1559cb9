"""Reaper: signals, kills and reaps the whole process trees of attempts."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import time
from typing import ClassVar, NamedTuple

from stoker import failpoints
from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending
from stoker.supervisor.leftovers import (
    LEFTOVER_GRACE_S,
    MOMENT_S,
    NEVER,
    Leftovers,
    Remainder,
    names_of,
)
from stoker.supervisor.messages import SignalAttempt, SignalMain
from stoker.supervisor.slot_queues import Attempt

_SWEEP_PERIOD_S = 0.5


class PendingKill(NamedTuple):
    """A tree to kill: its root, how often in a row no process of it was found, and since when."""

    pid: int
    misses: int
    since: float


class Reaper(abc.ABC):
    """Parent of all jobs. It knows which attempts run, which are being ended, and what ended ones have left.

    An attempt ends when its last process has ended. `kill_at` has the end of each grace, and `stray_since`
    when a process without an attempt was first seen.
    """

    lets_linger: ClassVar[bool] = False  # whether processes that may linger are left alone

    def __init__(self) -> None:
        self.name = ""
        self.running: dict[int, Attempt] = {}
        self.pids: dict[str, int] = {}
        self.pending_kills: dict[str, PendingKill] = {}
        self.leftovers = Leftovers(
            self.running, self.pids, self.is_foreign, lets_linger=self.lets_linger
        )
        self.kill_at: dict[str, float] = {}
        self.stray_since: dict[int, float] = {}
        self.sweep_at = NEVER

    @abc.abstractmethod
    def end(self, attempt: Attempt, ending: Ending) -> None:
        """Record the end of an attempt of which no process is left."""

    @abc.abstractmethod
    def read_gpu_peak(self, attempt: Attempt) -> int:
        """Return the most GPU memory that an ended attempt used, by its own report; 0 if there is none."""

    @abc.abstractmethod
    def record_exit(self, key: str, ending: Ending) -> None:
        """Record the end of an attempt's first process, while others of its processes run."""

    def on_signal(self, order: SignalAttempt | SignalMain) -> None:
        """Signal a job's tree, or its main process, once; with a grace, kill what is left after it."""
        key = order.key
        if key in self.pids:
            failpoints.reach("supervisor-before-signal")
            snapshot = process_tree.Snapshot()
            if order.grace_s is not None:
                self.name_leftovers(snapshot, key)
                self.end_within(key, order.grace_s)
            main_only = isinstance(order, SignalMain)
            self.signal_tree(snapshot, key, order.signum, main_only=main_only)
            failpoints.reach("supervisor-after-signal")

    def end_within(self, key: str, grace_s: float) -> None:
        """Kill what is left of a job after a grace."""
        self.kill_at[key] = due = time.monotonic() + grace_s
        self.sweep_at = min(self.sweep_at, due)

    def kill(self, key: str) -> None:
        """Kill a job's whole tree, and repeat that until nothing of it is left."""
        if key in self.pids:
            self.kill_at.pop(key, None)
            if key in self.leftovers.waiting:
                self.name_leftovers(process_tree.Snapshot(), key)
            self.kill_group(key)
            failpoints.reach("supervisor-struck")
            known = self.pending_kills.get(key)
            since = time.monotonic() if known is None else known.since
            self.pending_kills[key] = PendingKill(self.pids[key], 0, since)
            self.sweep_at = 0.0

    def kill_group(self, key: str) -> None:
        """Kill a job's process group at once, so that a shell does not start its next command."""
        left = self.leftovers.waiting.get(key)
        root = self.root_of(key)
        if root and (left is None or left.by_client):  # otherwise some of the group may linger
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(root, signal.SIGKILL)

    def root_of(self, key: str) -> int:
        """Return the number of a job's process group; 0 once another group may have it."""
        left = self.leftovers.waiting.get(key)
        if left is not None:
            return left.root
        pending = self.pending_kills.get(key)
        pid = self.pids.get(key, 0) or (0 if pending is None else pending.pid)
        first = self.running.get(pid)
        return pid if first is None or first.key == key else 0

    def reap(self) -> None:
        """Reap every child that has ended, and record the ends of attempts."""
        unsure: list[tuple[Attempt, Ending, int]] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.stray_since.pop(pid, None)
            attempt = self.running.pop(pid, None)
            if attempt is None:
                self.leftovers.forget(pid)
                self.sweep_soon()  # its own children are now ours
            else:
                if failpoints.is_armed:
                    failpoints.reach("supervisor-reaped")
                cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
                ending = Ending(status, time.time_ns() // 1000, cpu_us, usage.ru_maxrss)
                ending = ending._replace(gpu_peak_bytes=self.read_gpu_peak(attempt))
                if self.leftovers.are_possible(attempt.key):
                    unsure.append((attempt, ending, pid))
                    continue
                self.end(attempt, ending)
        for each in unsure:
            self.end_unless_left(*each)
        if self.leftovers.waiting:
            for remainder in self.leftovers.take_ended():
                self.end_remainder(remainder)

    def end_unless_left(self, attempt: Attempt, ending: Ending, pid: int) -> None:
        """End an attempt whose first process has ended, or wait for the processes that it has left."""
        # If the client is ending the attempt, it has signalled the whole tree and has given it a grace.
        by_client = attempt.key in self.kill_at or attempt.key in self.pending_kills
        remainder = Remainder(attempt, ending, pid, by_client=by_client)
        if self.leftovers.keep(remainder):
            self.record_exit(attempt.key, ending)
            self.sweep_at = min(self.sweep_at, remainder.term_at)
        else:
            self.end(attempt, ending)

    def end_remainder(self, remainder: Remainder, stuck: tuple[int, ...] = ()) -> None:
        """End an attempt of which no process is left, or only `stuck` ones that cannot be killed."""
        at_us = time.time_ns() // 1000
        ending = remainder.ending._replace(at_us=at_us, leftovers=remainder.names, stuck=stuck)
        if not remainder.by_client:  # processes that may linger must not be killed with the rest
            self.pending_kills.pop(remainder.attempt.key, None)
        self.end(remainder.attempt, ending)

    def sweep_soon(self) -> None:
        """Schedule a sweep, unless there is one."""
        if self.sweep_at == NEVER:
            self.sweep_at = time.monotonic() + _SWEEP_PERIOD_S

    def members(self, snapshot: process_tree.Snapshot, key: str) -> set[int]:
        """Return every living process of a job."""
        cookie = f"{self.name}:{key}"
        found = snapshot.members(self.root_of(key), cookie, process_tree.living_children())
        found |= snapshot.below(self.leftovers.guessed(key))
        return {pid for pid in found if not self.leftovers.may_linger(key, snapshot.marks(pid))}

    def signal_tree(
        self, snapshot: process_tree.Snapshot, key: str, signum: int, *, main_only: bool = False
    ) -> bool:
        """Signal every living process of a job, or its main process. Returns whether there is any."""
        members = self.members(snapshot, key)
        if main_only:
            members = snapshot.main_of(self.root_of(key), members)
        found = snapshot.by_age(members)
        process_tree.send((process.pid for process in found), signum)
        return bool(found)

    def name_leftovers(self, snapshot: process_tree.Snapshot, key: str) -> None:
        """Record the names of processes that an ended job has left, before their first signal."""
        left = self.leftovers.waiting.get(key)
        if left is not None and not left.by_client and not left.names:
            left.term_at = NEVER
            left.names = names_of(self.members(snapshot, key))

    def own_children(self) -> set[int]:
        """Return the living children that are attempts or descend from attempts."""
        running = self.running.keys()
        return {
            pid
            for pid in process_tree.living_children()
            if pid in running or not self.is_foreign(process_tree.read_marks(pid))
        }

    def strays(self) -> set[int]:
        """Return the living children that are left over from attempts."""
        return self.own_children() - self.running.keys()

    def is_foreign(self, marks: process_tree.ProcessMarks) -> bool:
        """Whether a process belongs to another Stoker, which a job has started."""
        return process_tree.is_foreign(marks, self.name)

    def end_overdue(self, now: float) -> float:
        """Terminate leftovers, and kill jobs whose grace is over. Returns when the next one is due."""
        for key, left in list(self.leftovers.waiting.items()):
            if now >= left.term_at:
                snapshot = process_tree.Snapshot()
                self.name_leftovers(snapshot, key)
                self.signal_tree(snapshot, key, signal.SIGTERM)
                self.end_within(key, LEFTOVER_GRACE_S - MOMENT_S)
        for key in [key for key, due in self.kill_at.items() if now >= due]:
            del self.kill_at[key]
            self.kill(key)
        terms = [left.term_at for left in self.leftovers.waiting.values()]
        return min([NEVER, *terms, *self.kill_at.values()])

    def sweep(self) -> None:
        """Kill what is due, and schedule the next sweep while anything is left."""
        now = time.monotonic()
        due = self.end_overdue(now)
        strays = self.strays()
        if strays or self.pending_kills:
            self.kill_due(strays, now)
        if self.pending_kills:
            self.sweep_at = now + 0.01
        elif self.stray_since.keys() & strays:
            self.sweep_at = now + 0.1
        else:
            self.stray_since.clear()
            self.sweep_at = NEVER
        self.sweep_at = min(self.sweep_at, due)

    def kill_due(self, strays: set[int], now: float) -> None:
        """Kill the trees of pending kills, and strays whose grace is over."""
        snapshot = process_tree.Snapshot()
        for key, pending in list(self.pending_kills.items()):
            if self.signal_tree(snapshot, key, signal.SIGKILL) or key in self.pids:
                self.pending_kills[key] = pending._replace(misses=0)
                if now - pending.since > 2 * LEFTOVER_GRACE_S:
                    self.give_up(snapshot, key, now)
            elif pending.misses:
                del self.pending_kills[key]
            else:
                self.pending_kills[key] = pending._replace(misses=1)
        for pid in strays & snapshot.table.keys():
            if self.belongs_to_running(snapshot, pid):
                continue
            if now - self.stray_since.setdefault(pid, now) >= LEFTOVER_GRACE_S:
                process_tree.send(snapshot.below([pid]), signal.SIGKILL)

    def give_up(self, snapshot: process_tree.Snapshot, key: str, now: float) -> None:
        """Stop waiting for processes that cannot be killed: another user's, or stuck in the kernel."""
        left = self.leftovers.waiting.get(key)
        if left is not None:
            stuck = self.members(snapshot, key)
            self.stray_since.update(dict.fromkeys(stuck, now - 2 * LEFTOVER_GRACE_S - 1))
            del self.leftovers.waiting[key], self.pending_kills[key]
            self.end_remainder(left, tuple(sorted(stuck)))

    def belongs_to_running(self, snapshot: process_tree.Snapshot, pid: int) -> bool:
        """Whether a daemonised process belongs to a job that still runs."""
        if self.leftovers.owner(pid) in self.pids or self.leftovers.may_be_of_running(pid):
            return True
        process = snapshot.table[pid]
        if {process.group, process.session} & self.running.keys():
            return True
        cookies = snapshot.marks(pid).cookies
        return any(f"{self.name}:{key}" in cookies for key in self.pids)
