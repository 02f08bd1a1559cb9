"""Limits of the RAM of attempts: the supervisor's side of the memory watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stoker import failpoints
from stoker.supervisor.journal import Ending, Journal, limit_line

if TYPE_CHECKING:
    from stoker.supervisor.memory_watch import MemoryWatch, WatchedAttempt
    from stoker.supervisor.slot_queues import Attempt

OnOver = Callable[[str, int], None]
"""Ends an attempt, given by its key, that used so many bytes."""


class MemoryLimits:
    """Calls `on_over` for each attempt with a limit that uses more; the journal has the reason before.

    `used` has what those attempts used.
    """

    def __init__(self, journal: Journal, on_over: OnOver) -> None:
        self.used: dict[str, int] = {}
        self._journal = journal
        self._on_over = on_over
        self._limited: dict[str, WatchedAttempt] = {}
        self._watch: MemoryWatch | None = (
            None  # its thread is started for the first attempt with a limit
        )

    def begin(self, attempt: Attempt, pid: int, cookie: str) -> None:
        """Watch an attempt that has just started, if it has a limit."""
        if attempt.mem_bytes:
            self.watch(attempt.key, attempt.mem_bytes, pid, [cookie])

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
        """Change the limit of a watched attempt; 0 lets it use any amount. False if it is not watched."""
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
        return ending.killed_with(used_bytes) if used_bytes else ending
