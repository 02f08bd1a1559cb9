"""Limits of the RAM and CPUs of attempts: by cgroups where the user may make some, else by a memory watch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from stoker import failpoints
from stoker.supervisor.journal import Ending, Journal, limit_line

if TYPE_CHECKING:
    from stoker.supervisor.cgroups import JobCgroups
    from stoker.supervisor.memory_watch import MemoryWatch, WatchedAttempt
    from stoker.supervisor.slot_queues import Attempt

OnOver = Callable[[str, int], None]
"""Ends an attempt, given by its key, that used so many bytes."""
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


class AttemptLimits:
    """Limits attempts, from their start to their end.

    In a cgroup the kernel kills an attempt that uses too much RAM. Without one, `on_over` is called for it,
    and the journal has the reason before. `used` has what such attempts used. `kin` are processes that count
    as parts of Stoker without being marked so.
    """

    def __init__(self, journal: Journal, on_over: OnOver) -> None:
        self.used: dict[str, int] = {}
        self.kin: Collection[int] = ()
        self.name = ""
        self._journal = journal
        self._on_over = on_over
        self._limited: dict[str, WatchedAttempt] = {}
        self._watch: MemoryWatch | None = (
            None  # its thread is started for the first attempt that needs it
        )
        self._confined: set[str] = set()  # attempts with a cgroup
        self._cgroups: JobCgroups | None = None
        self._looked_for_cgroups = False

    def entered(self, attempt: Attempt) -> contextlib.AbstractContextManager[None]:
        """Let what this process starts meanwhile begin in an attempt's cgroup and on its CPUs."""
        if not (attempt.mem_bytes or attempt.cpus or attempt.slot.cpus):
            return _NOTHING
        return self._entered(attempt)

    @contextlib.contextmanager
    def _entered(self, attempt: Attempt) -> Iterator[None]:
        cgroups = self._find_cgroups() if attempt.mem_bytes or attempt.cpus else None
        with contextlib.ExitStack() as stack:
            if attempt.slot.cpus:
                stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
                bind(0, attempt.slot.cpus)
            if cgroups is not None:
                with contextlib.suppress(OSError):
                    limits = attempt.mem_bytes, attempt.cpus
                    stack.enter_context(cgroups.entered(attempt.key, *limits))
                    self._confined.add(attempt.key)
            yield

    def placer(self, attempt: Attempt) -> Callable[[int], None] | None:
        """Return what puts a forked process into the cgroup and on the CPUs of its attempt; None without."""
        cgroups = self._find_cgroups() if attempt.mem_bytes or attempt.cpus else None
        if cgroups is None and not attempt.slot.cpus:
            return None

        def place(pid: int) -> None:
            if attempt.slot.cpus:
                bind(pid, attempt.slot.cpus)
            if cgroups is not None:
                with contextlib.suppress(OSError):
                    cgroups.place(attempt.key, attempt.mem_bytes, attempt.cpus, pid)
                    self._confined.add(attempt.key)

        return place

    def begin(self, attempt: Attempt, pid: int, cookie: str) -> None:
        """Watch the RAM of an attempt that has just started, if it has a limit and no cgroup."""
        if attempt.mem_bytes and attempt.key not in self._confined:
            self.watch(attempt.key, attempt.mem_bytes, pid, [cookie])

    def adopt(self, key: str, mem_bytes: int, pid: int, cookies: Iterable[str]) -> None:
        """Go on limiting an attempt of an earlier supervisor, if it has a limit."""
        if not mem_bytes:
            return
        cgroups = self._find_cgroups()
        if cgroups is not None and cgroups.take_over(key, mem_bytes):
            self._confined.add(key)
        else:
            self.watch(key, mem_bytes, pid, cookies, is_adopted=True)

    def watch(
        self,
        key: str,
        limit_bytes: int,
        pid: int,
        cookies: Iterable[str],
        *,
        is_adopted: bool = False,
    ) -> None:
        """Watch an attempt whose first process is `pid`."""
        from stoker.supervisor.memory_watch import MemoryWatch, WatchedAttempt

        if self._watch is None:
            self._watch = MemoryWatch()
        limited = WatchedAttempt(key, limit_bytes, pid, cookies, is_adopted=is_adopted)
        self._limited[key] = limited
        self._watch.watch(limited)

    def change(self, key: str, limit_bytes: int) -> bool:
        """Change the RAM limit of an attempt; 0 lets it use any amount. False if it is not limited here."""
        if key in self._confined and self._cgroups is not None:
            self._cgroups.set_mem(key, limit_bytes)
            return True
        limited = self._limited.get(key)
        if limited is None or self._watch is None:
            return False
        self._watch.forget(key)
        limited.limit_bytes = limit_bytes
        if limit_bytes:
            self._watch.watch(limited)
        return True

    def enforce(self) -> None:
        """End the attempts that the watch has found over their limits."""
        if self._watch is None:
            return
        for key, used_bytes in self._watch.take():
            limited = self._limited.get(key)
            if limited is not None and limited.limit_bytes:
                self.used[key] = used_bytes
                self._journal.note(limit_line(key, limited.limit_bytes, used_bytes))
                self._journal.flush()
                failpoints.reach("supervisor-over-memory")
                self._on_over(key, used_bytes)

    def conclude(self, key: str, ending: Ending) -> Ending:
        """Forget an attempt that has ended; returns its end with the RAM it was killed for, if it was."""
        if self._limited.pop(key, None) is not None and self._watch is not None:
            self._watch.forget(key)
        used_bytes = self.used.pop(key, 0)
        if key in self._confined and self._cgroups is not None:
            self._confined.discard(key)
            used_bytes = self._cgroups.conclude(key) or used_bytes
        return ending.killed_with(used_bytes) if used_bytes else ending

    def abandon(self, key: str) -> None:
        """Remove the cgroup of an attempt that could not be started."""
        if key in self._confined and self._cgroups is not None:
            self._confined.discard(key)
            self._cgroups.conclude(key)

    def _find_cgroups(self) -> JobCgroups | None:
        """Find a cgroup that this user may divide; looks once, when the first attempt needs it."""
        if not self._looked_for_cgroups:
            from stoker.supervisor.cgroups import find_cgroups, is_own_process

            self._looked_for_cgroups = True
            prefix, kin = f"{self.name}:", {os.getpid(), *self.kin}
            self._cgroups = find_cgroups(
                self.name, lambda pid: pid in kin or is_own_process(pid, prefix)
            )
        return self._cgroups


def bind(pid: int, cpus: Collection[int]) -> None:
    """Let a process run on these CPUs alone; on all as before if it may use none of them."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, cpus)
