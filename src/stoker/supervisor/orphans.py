"""Jobs that an earlier supervisor started and that outlived it: others reap them, this one watches."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from stoker.supervisor import pidfd, process_tree
from stoker.supervisor.journal import Ending
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S, MOMENT_S, NEVER, names_of

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
        seen = process_tree.look(self.pid)
        return seen is None or seen.ticks != self.ticks

    def exit_status(self) -> int | None:
        """The wait status of its first process, if anybody can still tell."""
        return pidfd.exit_status(self.fd, self.pid, self.ticks)

    def members(self, snapshot: process_tree.Snapshot) -> list[process_tree.Process]:
        """Every living process that is proven to be the job's.

        Its cookie proves it, or descent from one that is proven. Group and session prove it while
        the first process lives, whose number they have; afterwards the session proves it of those
        that were started before.
        """
        seeds = {pid for cookie in self.cookies for pid in snapshot.bearers(cookie).get(cookie, ())}
        if self.pid and not self.has_ended():
            self.held_ticks = process_tree.boot_ticks()
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
        return snapshot.by_age(snapshot.below(seeds))


class Leftover:
    """What remains of an orphan whose first process is over.

    It gets TERM at `term_at` and KILL at `kill_at`. `is_asked` is whether the client is ending its attempt,
    `ending` is how its first process ended, if that is known, and `is_open` is whether the end of the
    attempt is still to be told.
    """

    __slots__ = ("ending", "is_asked", "is_open", "kill_at", "names", "orphan", "term_at")

    def __init__(
        self, orphan: Orphan, *, is_open: bool = False, ending: Ending | None = None
    ) -> None:
        self.orphan = orphan
        self.is_open = is_open
        self.is_asked = False
        self.ending = ending
        self.term_at = time.monotonic() + MOMENT_S
        self.kill_at = time.monotonic() + LEFTOVER_GRACE_S
        self.names: tuple[str, ...] = ()

    def grant(self, kill_at: float) -> None:
        """Leave it the rest of the grace that the client gave; it has been signalled already."""
        self.is_asked = True
        self.term_at, self.kill_at = NEVER, kill_at

    def press(self, processes: list[process_tree.Process], now: float) -> None:
        """Ask these processes to end, or kill them, as far as due."""
        if now >= self.kill_at:
            pidfd.send(processes, signal.SIGKILL)
        elif now >= self.term_at:
            self.term_at = NEVER
            self.names = names_of({process.pid for process in processes})
            pidfd.send(processes, signal.SIGTERM)


class OrphanWatch:
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
        """A job's first process is over, which leaves the rest; returns its wait status, if known."""
        orphan = self.living.pop(key)
        status = orphan.exit_status()
        if orphan.fd >= 0:
            del self._watched[orphan.fd]
            self._poll.unregister(orphan.fd)
            os.close(orphan.fd)
            orphan.fd = -1
        self.leftovers[key] = Leftover(orphan, is_open=True)
        return status

    def strike(self, key: str) -> None:
        """Kill a job's first process at once."""
        fd = self.living[key].fd
        if fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def signal(self, snapshot: process_tree.Snapshot, key: str, signum: int) -> bool:
        """Signal every process that is left of a job; whether there is any."""
        orphan = self.living.get(key) or self.leftovers[key].orphan
        found = orphan.members(snapshot)
        pidfd.send(found, signum)
        return bool(found)

    def ended(self) -> list[str]:
        """The jobs whose first process is over."""
        return [key for key, orphan in self.living.items() if orphan.has_ended()]

    def sweep(self) -> tuple[list[tuple[str, Leftover]], float]:
        """End leftovers as far as due.

        Returns those that are gone or cannot be killed, and when to come back.
        """
        now = time.monotonic()
        over = []
        snapshot = process_tree.Snapshot() if self.leftovers else None
        for key, left in list(self.leftovers.items()):
            assert snapshot is not None
            members = left.orphan.members(snapshot)
            found = [
                each for each in members if left.is_asked or not snapshot.marks(each.pid).lingers
            ]
            if not found or now > left.kill_at + LEFTOVER_GRACE_S:
                over.append((key, self.leftovers.pop(key)))
            else:
                left.press(found, now)
        if self.leftovers:
            return over, now + _SWEEP_PERIOD_S
        return over, now + _GLANCE_PERIOD_S if len(self._watched) < len(self.living) else NEVER
