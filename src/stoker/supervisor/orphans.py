"""Jobs of an earlier supervisor that outlived it. Another process reaps them; this one watches them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from stoker.supervisor import pidfd, process_tree
from stoker.supervisor.journal import Ending
from stoker.supervisor.leftovers import LEFTOVER_GRACE_S, MOMENT_S, NEVER, names_of

_POLL_PERIOD_S = 1.0
_SWEEP_PERIOD_S = 0.1


class Orphan:
    """A job whose supervisor is gone, or what is left of it.

    Its first process is `pid`, started at `ticks`, watched through the pidfd `fd` unless that is -1.
    `held_ticks` is a time at which the pid still belonged to that process.
    """

    __slots__ = ("cookies", "fd", "held_ticks", "pid", "ticks")

    def __init__(self, cookies: set[str], pid: int = 0, ticks: int = 0, fd: int = -1) -> None:
        self.cookies = cookies
        self.pid = pid
        self.ticks = ticks
        self.fd = fd
        self.held_ticks = 0

    def has_ended(self) -> bool:
        """Whether its first process has ended."""
        if self.fd >= 0:
            return pidfd.has_ended(self.fd)
        seen = process_tree.find_process(self.pid)
        return seen is None or seen.ticks != self.ticks

    def exit_status(self) -> int | None:
        """Return the wait status of its first process; None if it can no longer be known."""
        return pidfd.exit_status(self.fd, self.pid, self.ticks)

    def members(self, snapshot: process_tree.Snapshot) -> list[process_tree.Process]:
        """Return every living process that provably belongs to the job.

        Its cookie proves that, or descent from such a process. While the first process lives, its group and
        session prove it too. Afterwards the session proves it for processes that were started before.
        """
        seeds = {
            pid for cookie in self.cookies for pid in snapshot.by_cookie(cookie).get(cookie, ())
        }
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
    """What is left of an orphan whose first process has ended.

    TERM is due at `term_at` and KILL at `kill_at`. `by_client` is whether the client is ending the attempt,
    `ending` is how its first process ended, if that is known, and `is_open` is whether the end of the attempt
    is not reported yet.
    """

    __slots__ = ("by_client", "ending", "is_open", "kill_at", "names", "orphan", "term_at")

    def __init__(
        self, orphan: Orphan, *, is_open: bool = False, ending: Ending | None = None
    ) -> None:
        self.orphan = orphan
        self.is_open = is_open
        self.by_client = False
        self.ending = ending
        self.term_at = time.monotonic() + MOMENT_S
        self.kill_at = time.monotonic() + LEFTOVER_GRACE_S
        self.names: tuple[str, ...] = ()

    def set_grace(self, kill_at: float) -> None:
        """Apply the grace that the client gave when it signalled the attempt."""
        self.by_client = True
        self.term_at, self.kill_at = NEVER, kill_at

    def end_overdue(self, processes: list[process_tree.Process], now: float) -> None:
        """Terminate or kill these processes if that is due."""
        if now >= self.kill_at:
            pidfd.send(processes, signal.SIGKILL)
        elif now >= self.term_at:
            self.term_at = NEVER
            self.names = names_of({process.pid for process in processes})
            pidfd.send(processes, signal.SIGTERM)


class OrphanWatch:
    """All orphans, by the keys of their attempts."""

    def __init__(self, poll: select.epoll) -> None:
        self.living: dict[str, Orphan] = {}
        self.leftovers: dict[str, Leftover] = {}
        self._watched: dict[int, str] = {}
        self._poll = poll

    def __bool__(self) -> bool:
        return bool(self.living or self.leftovers)

    def watch(self, key: str, orphan: Orphan) -> None:
        """Watch a job that still runs."""
        self.living[key] = orphan
        if orphan.fd >= 0:
            self._watched[orphan.fd] = key
            self._poll.register(orphan.fd, select.EPOLLIN)

    def key_of(self, fd: int) -> str | None:
        """Return the attempt that is watched through a descriptor."""
        return self._watched.get(fd)

    def become_leftover(self, key: str) -> int | None:
        """Move a job whose first process has ended to the leftovers. Returns its wait status, if known."""
        orphan = self.living.pop(key)
        status = orphan.exit_status()
        if orphan.fd >= 0:
            del self._watched[orphan.fd]
            self._poll.unregister(orphan.fd)
            os.close(orphan.fd)
            orphan.fd = -1
        self.leftovers[key] = Leftover(orphan, is_open=True)
        return status

    def kill_first(self, key: str) -> None:
        """Kill a job's first process at once."""
        fd = self.living[key].fd
        if fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)

    def signal(
        self, snapshot: process_tree.Snapshot, key: str, signum: int, *, main_only: bool = False
    ) -> bool:
        """Signal every process that is left of a job, or its main one. Returns whether there is any."""
        orphan = self.living.get(key) or self.leftovers[key].orphan
        found = orphan.members(snapshot)
        if main_only:
            main = snapshot.main_of(orphan.pid, {process.pid for process in found})
            found = [process for process in found if process.pid in main]
        pidfd.send(found, signum)
        return bool(found)

    def ended(self) -> list[str]:
        """Return the jobs whose first process has ended."""
        return [key for key, orphan in self.living.items() if orphan.has_ended()]

    def sweep(self) -> tuple[list[tuple[str, Leftover]], float]:
        """Terminate and kill leftovers that are due.

        Returns the leftovers that are gone or cannot be killed, and when to sweep again.
        """
        now = time.monotonic()
        over = []
        snapshot = process_tree.Snapshot() if self.leftovers else None
        for key, left in list(self.leftovers.items()):
            assert snapshot is not None
            members = left.orphan.members(snapshot)
            found = [
                each for each in members if left.by_client or not snapshot.marks(each.pid).lingers
            ]
            if not found or now > left.kill_at + LEFTOVER_GRACE_S:
                over.append((key, self.leftovers.pop(key)))
            else:
                left.end_overdue(found, now)
        if self.leftovers:
            return over, now + _SWEEP_PERIOD_S
        return over, now + _POLL_PERIOD_S if len(self._watched) < len(self.living) else NEVER
