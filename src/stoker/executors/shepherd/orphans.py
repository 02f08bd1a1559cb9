"""Jobs that an earlier shepherd started and that outlived it: others reap them, this one watches."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NamedTuple

from stoker.executors.shepherd import pidfd, trees

_GLANCE_PERIOD_S = 1.0
_SWEEP_PERIOD_S = 0.1


class Orphan:
    """A job without its parent, or what is left of one.

    Its first process is `pid`, started at `ticks`, watched through `fd` if there is one. `held_ticks`
    is a time at which that number was surely still its own.
    """

    __slots__ = ("cookies", "fd", "held_ticks", "pid", "ticks")

    def __init__(self, cookies: set[str], pid: int = 0, ticks: int = 0, fd: int = -1) -> None:
        self.cookies = cookies
        self.pid = pid
        self.ticks = ticks
        self.fd = fd
        self.held_ticks = 0

    def has_ended(self) -> bool:
        """Whether its first process is over."""
        if self.fd >= 0:
            return pidfd.has_ended(self.fd)
        seen = trees.look(self.pid)
        return seen is None or seen.ticks != self.ticks

    def exit_status(self) -> int | None:
        """The wait status of its first process, if anybody can still tell."""
        return pidfd.exit_status(self.fd, self.pid, self.ticks)

    def members(self, snapshot: trees.Snapshot) -> list[trees.Process]:
        """Every living process that is proven to be the job's.

        Its cookie proves it, or descent from one that is proven. Group and session prove it while
        the first process lives, whose number they have; afterwards the session proves it of those
        that were started before.
        """
        seeds = {pid for cookie in self.cookies for pid in snapshot.bearers(cookie).get(cookie, ())}
        if self.pid and not self.has_ended():
            self.held_ticks = trees.boot_ticks()
            seeds |= {
                process.pid
                for process in snapshot.table.values()
                if self.pid in (process.pid, process.group, process.session)
            }
        else:
            seeds |= {
                process.pid
                for process in snapshot.table.values()
                if process.session == self.pid and process.ticks < self.held_ticks
            }
        return [snapshot.table[pid] for pid in snapshot.below(seeds)]


class Leftover(NamedTuple):
    """What remains of an orphan whose first process is over, and since when."""

    orphan: Orphan
    since: float


class Orphanage:
    """All orphans by the keys of their attempts."""

    def __init__(self, poll: select.epoll) -> None:
        self.living: dict[str, Orphan] = {}
        self.leftovers: dict[str, Leftover] = {}
        self._watched: dict[int, str] = {}
        self._poll = poll

    def __bool__(self) -> bool:
        return bool(self.living or self.leftovers)

    def watch(self, key: str, orphan: Orphan) -> None:
        """Look after a job that lives on."""
        self.living[key] = orphan
        if orphan.fd >= 0:
            self._watched[orphan.fd] = key
            self._poll.register(orphan.fd, select.EPOLLIN)

    def key_of(self, fd: int) -> str | None:
        """Whose descriptor it is."""
        return self._watched.get(fd)

    def mourn(self, key: str) -> int | None:
        """A job's first process is over; returns its wait status, if anybody can still tell."""
        orphan = self.living.pop(key)
        status = orphan.exit_status()
        if orphan.fd >= 0:
            del self._watched[orphan.fd]
            self._poll.unregister(orphan.fd)
            os.close(orphan.fd)
            orphan.fd = -1
        self.leftovers[key] = Leftover(orphan, time.monotonic())
        return status

    def strike(self, key: str) -> None:
        """Kill a job's first process at once."""
        fd = self.living[key].fd
        if fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def signal(self, snapshot: trees.Snapshot, key: str, signum: int) -> bool:
        """Signal every process that is left of a job; whether there is any."""
        orphan = self.living.get(key) or self.leftovers[key].orphan
        found = orphan.members(snapshot)
        pidfd.send(found, signum)
        return bool(found)

    def ended(self) -> list[str]:
        """The jobs whose first process is over."""
        return [key for key, orphan in self.living.items() if orphan.has_ended()]

    def sweep(self, grace_s: float) -> float:
        """Kill leftovers whose grace is over, forget what cannot be killed; returns when to come back."""
        now = time.monotonic()
        snapshot = trees.Snapshot() if self.leftovers else None
        for key, (orphan, since) in list(self.leftovers.items()):
            assert snapshot is not None
            members = orphan.members(snapshot)
            found = [each for each in members if not snapshot.marks(each.pid).lingers]
            if not found or now - since > 2 * grace_s:
                del self.leftovers[key]
            elif now - since > grace_s:
                pidfd.send(found, signal.SIGKILL)
        if self.leftovers:
            return now + _SWEEP_PERIOD_S
        if len(self._watched) < len(self.living):
            return now + _GLANCE_PERIOD_S
        return float("inf")
