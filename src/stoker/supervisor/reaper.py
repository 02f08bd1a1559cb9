"""Follows the processes of attempts to their end: reaps, signals and kills whole trees."""

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
from stoker.supervisor.messages import KillAttempt, SignalAttempt
from stoker.supervisor.slot_queues import Attempt

_SWEEP_PERIOD_S = 0.5


class PendingKill(NamedTuple):
    """A tree to be killed: its root, how often in a row nothing of it was found, and since when."""

    pid: int
    misses: int
    since: float


class Reaper(abc.ABC):
    """Parent of all jobs: knows what runs, what is being ended, and what is left of what has ended."""

    lets_linger: ClassVar[bool] = False  # whether leftovers that may linger are left alone

    def __init__(self) -> None:
        self.name = ""
        self.running: dict[int, Attempt] = {}
        self.pids: dict[str, int] = {}
        self.doomed: dict[str, PendingKill] = {}
        self.leftovers = Leftovers(
            self.running, self.pids, self.is_foreign, lets_linger=self.lets_linger
        )
        self.kill_at: dict[str, float] = {}  # when the grace of what is being ended is over
        self.orphans: dict[int, float] = {}
        self.sweep_at = NEVER

    @abc.abstractmethod
    def end(self, attempt: Attempt, ending: Ending) -> None:
        """An attempt is over: its first process has ended, and nothing else of it runs."""

    @abc.abstractmethod
    def note_exit(self, key: str, ending: Ending) -> None:
        """Remember how the first process of an attempt ended, while others of its processes run."""

    def on_signal(self, order: SignalAttempt) -> None:
        """Signal a job's whole tree once; with a grace, kill what is left of it when that is over."""
        key = order.key
        if key in self.pids:
            failpoints.reach("supervisor-before-signal")
            snapshot = process_tree.Snapshot()
            if order.grace_s is not None:
                self.name_leftovers(snapshot, key)
                self.end_within(key, order.grace_s)
            self.signal_tree(snapshot, key, order.signum)
            failpoints.reach("supervisor-after-signal")

    def end_within(self, key: str, grace_s: float) -> None:
        """Kill what is left of a job when its grace is over."""
        self.kill_at[key] = due = time.monotonic() + grace_s
        self.sweep_at = min(self.sweep_at, due)

    def on_kill(self, order: KillAttempt) -> None:
        """Kill a job's whole tree."""
        self.kill(order.key)

    def kill(self, key: str) -> None:
        """Kill a job's whole tree, again and again until nothing of it is left."""
        if key in self.pids:
            self.kill_at.pop(key, None)
            if key in self.leftovers.waiting:
                self.name_leftovers(process_tree.Snapshot(), key)
            self.strike(key)
            failpoints.reach("supervisor-struck")
            known = self.doomed.get(key)
            since = time.monotonic() if known is None else known.since
            self.doomed[key] = PendingKill(self.pids[key], 0, since)
            self.sweep_at = 0.0

    def strike(self, key: str) -> None:
        """Kill a job's group at once, so that a shell does not go on to its next command."""
        left = self.leftovers.waiting.get(key)
        root = self.root_of(key)
        if root and (left is None or left.is_asked):  # else some of the group may linger
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(root, signal.SIGKILL)

    def root_of(self, key: str) -> int:
        """The number of a job's process group; 0 once it may be another's."""
        left = self.leftovers.waiting.get(key)
        if left is not None:
            return left.root
        doom = self.doomed.get(key)
        pid = self.pids.get(key, 0) or (0 if doom is None else doom.pid)
        first = self.running.get(pid)
        return pid if first is None or first.key == key else 0

    def reap(self) -> None:
        """Record every end, and start what waited for it."""
        doubtful: list[tuple[Attempt, Ending, int]] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self.orphans.pop(pid, None)
            attempt = self.running.pop(pid, None)
            if attempt is None:
                self.leftovers.forget(pid)
                self.sweep_soon()  # what it leaves may have nobody else to look after it
            else:
                if failpoints.is_armed:
                    failpoints.reach("supervisor-reaped")
                cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
                ending = Ending(status, time.time_ns() // 1000, cpu_us, usage.ru_maxrss)
                if self.leftovers.are_possible(attempt.key):
                    doubtful.append((attempt, ending, pid))
                    continue
                self.end(attempt, ending)
        for each in doubtful:
            self.end_unless_left(*each)
        if self.leftovers.waiting:
            for remainder in self.leftovers.gone():
                self.conclude(remainder)

    def end_unless_left(self, attempt: Attempt, ending: Ending, pid: int) -> None:
        """End an attempt whose first process has ended, or wait for what it has left."""
        # The client gave a grace to what it is ending, and has signalled all of it.
        is_asked = attempt.key in self.kill_at or attempt.key in self.doomed
        remainder = Remainder(attempt, ending, pid, is_asked=is_asked)
        if self.leftovers.keep(remainder):
            self.note_exit(attempt.key, ending)
            self.sweep_at = min(self.sweep_at, remainder.term_at)
        else:
            self.end(attempt, ending)

    def conclude(self, remainder: Remainder, stuck: tuple[int, ...] = ()) -> None:
        """End an attempt of which nothing is left, or only what cannot be killed."""
        at_us = time.time_ns() // 1000
        ending = remainder.ending._replace(at_us=at_us, leftovers=remainder.names, stuck=stuck)
        if not remainder.is_asked:  # what may linger must not be killed with the rest
            self.doomed.pop(remainder.attempt.key, None)
        self.end(remainder.attempt, ending)

    def sweep_soon(self) -> None:
        """Look for leftovers before long."""
        if self.sweep_at == float("inf"):
            self.sweep_at = time.monotonic() + _SWEEP_PERIOD_S

    def members(self, snapshot: process_tree.Snapshot, key: str) -> set[int]:
        """Every living process of a job."""
        cookie = f"{self.name}:{key}"
        found = snapshot.members(self.root_of(key), cookie, process_tree.living_children())
        found |= snapshot.below(self.leftovers.guessed(key))
        return {pid for pid in found if not self.leftovers.may_linger(key, snapshot.marks(pid))}

    def signal_tree(self, snapshot: process_tree.Snapshot, key: str, signum: int) -> bool:
        """Signal every living process of a job; whether there is any."""
        found = snapshot.by_age(self.members(snapshot, key))
        process_tree.send((process.pid for process in found), signum)
        return bool(found)

    def name_leftovers(self, snapshot: process_tree.Snapshot, key: str) -> None:
        """Remember what a job left that has ended by itself, before that is signalled for the first time."""
        left = self.leftovers.waiting.get(key)
        if left is not None and not left.is_asked and not left.names:
            left.term_at = NEVER
            left.names = names_of(self.members(snapshot, key))

    def own_children(self) -> set[int]:
        """Living children that are attempts, or come from them."""
        running = self.running.keys()
        return {
            pid
            for pid in process_tree.living_children()
            if pid in running or not self.is_foreign(process_tree.marks_of(pid))
        }

    def strays(self) -> set[int]:
        """Living children that are left over from attempts."""
        return self.own_children() - self.running.keys()

    def is_foreign(self, marks: process_tree.ProcessMarks) -> bool:
        """Whether a process is another Stoker's that was started by a job, or a job of that Stoker's."""
        return process_tree.is_foreign(marks, self.name)

    def press(self, now: float) -> float:
        """Ask leftovers to end and kill what is over its grace, as far as due; returns when to come back."""
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
        """Kill what is doomed, and leftovers whose grace is over; come back while any are left."""
        now = time.monotonic()
        due = self.press(now)
        strays = self.strays()
        if strays or self.doomed:
            self.purge(strays, now)
        if self.doomed:
            self.sweep_at = now + 0.01
        elif self.orphans.keys() & strays:
            self.sweep_at = now + 0.1
        else:
            self.orphans.clear()
            self.sweep_at = float("inf")
        self.sweep_at = min(self.sweep_at, due)

    def purge(self, strays: set[int], now: float) -> None:
        """Kill what is to be killed by now."""
        snapshot = process_tree.Snapshot()
        for key, doom in list(self.doomed.items()):
            if self.signal_tree(snapshot, key, signal.SIGKILL) or key in self.pids:
                self.doomed[key] = doom._replace(misses=0)
                if now - doom.since > 2 * LEFTOVER_GRACE_S:
                    self.give_up(snapshot, key, now)
            elif doom.misses:
                del self.doomed[key]
            else:
                self.doomed[key] = doom._replace(misses=1)
        for pid in strays & snapshot.table.keys():
            if self.belongs_to_running(snapshot, pid):
                continue
            if now - self.orphans.setdefault(pid, now) >= LEFTOVER_GRACE_S:
                process_tree.send(snapshot.below([pid]), signal.SIGKILL)

    def give_up(self, snapshot: process_tree.Snapshot, key: str, now: float) -> None:
        """Wait no longer for processes that cannot be killed: another user's, or stuck in the kernel."""
        left = self.leftovers.waiting.get(key)
        if left is not None:
            stuck = self.members(snapshot, key)
            self.orphans.update(dict.fromkeys(stuck, now - 2 * LEFTOVER_GRACE_S - 1))
            del self.leftovers.waiting[key], self.doomed[key]
            self.conclude(left, tuple(sorted(stuck)))

    def belongs_to_running(self, snapshot: process_tree.Snapshot, pid: int) -> bool:
        """Whether a daemonised process is part of a job that still runs."""
        if self.leftovers.owner(pid) in self.pids:
            return True
        process = snapshot.table[pid]
        if {process.group, process.session} & self.running.keys():
            return True
        cookies = snapshot.marks(pid).cookies
        return any(f"{self.name}:{key}" in cookies for key in self.pids)
