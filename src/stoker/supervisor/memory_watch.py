"""Memory watch: a thread that finds attempts whose processes use more RAM than they may.

It counts memory that the kernel cannot take back: what the processes have allocated, and shared memory.
File contents that they map do not count. Pages that several processes share, as after a fork, count once.

A look adds up what the kernel keeps for each process anyway, and takes microseconds. These figures count
shared pages several times. So only if they are above the limit, the thread asks for the exact ones, which
takes the kernel much longer. All of it together takes a few per cent of one CPU at most, and nothing while
no attempt has a limit.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable

from stoker.supervisor import process_tree
from stoker.supervisor.process_tree import Snapshot

_LOOK_PERIOD_S = 0.2
_SEARCH_PERIOD_S = 1.0
_LOOK_PART = 0.02  # of one CPU: for looks,
_SEARCH_PART = 0.01  # for searches of the process table,
_EXACT_PART = 0.02  # for exact figures,
_URGENT_PART = 0.2  # and for these while an attempt grows that was near its limit
_STATUS_BYTES = 1 << 16
_KIB = 1024


class WatchedAttempt:
    """An attempt with a limit.

    `root` is its first process, started at `ticks`. An attempt of an earlier supervisor (`is_adopted`) has no
    process below this one, so its processes are found by their cookies.
    """

    def __init__(
        self, key: str, limit_bytes: int, root: int, cookies: Iterable[str], *, is_adopted: bool
    ) -> None:
        self.key = key
        self.limit_bytes = limit_bytes
        self.root = root
        self.cookies = frozenset(cookies)
        self.is_adopted = is_adopted
        first = process_tree.find_process(root)
        self.ticks = 0 if first is None else first.ticks
        self.pids: set[int] = {root}
        self.exact_at = 0.0  # when the exact figures may be asked for again,
        self.urgent_at = 0.0  # and when if it has grown by more than it had left
        self.rough_bytes = 0  # the sum of the rough figures when they were asked for,
        self.left_bytes = 0  # and what it had left by the exact ones

    def find(self, snapshot: Snapshot) -> set[int]:
        """Return the living processes of the attempt."""
        first = snapshot.table.get(self.root)
        root = self.root if first is not None and first.ticks == self.ticks else 0
        if not self.is_adopted:
            (cookie,) = self.cookies
            return snapshot.members(root, cookie, process_tree.living_children())
        seeds = {root} if root else set()
        for cookie in self.cookies:
            seeds |= snapshot.by_cookie(cookie).get(cookie, set())
        return snapshot.below(seeds)

    def may_ask(self, rough_bytes: int, now: float) -> bool:
        """Whether it is time for exact figures."""
        grown = rough_bytes - self.rough_bytes > self.left_bytes
        return now >= (self.urgent_at if grown else self.exact_at)


class MemoryWatch:
    """Looks at all attempts with a limit. `take` returns those over it; SIGCHLD announces them."""

    def __init__(self) -> None:
        self._watched: dict[str, WatchedAttempt] = {}
        self._over: deque[tuple[str, int]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._search_at = 0.0

    def watch(self, attempt: WatchedAttempt) -> None:
        """Watch an attempt from now on."""
        with self._changed:
            self._watched[attempt.key] = attempt
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memory-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, key: str) -> None:
        """Stop watching an attempt."""
        with self._changed:
            self._watched.pop(key, None)

    def take(self) -> list[tuple[str, int]]:
        """Return the attempts that were found over their limit, and how many bytes they used."""
        found = []
        while self._over:
            found.append(self._over.popleft())
        return found

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
                watched = list(self._watched.values())
            time.sleep(self._look_at(watched))

    def _look_at(self, watched: list[WatchedAttempt]) -> float:
        """Look at each attempt once. Returns the pause until the next look."""
        began = time.thread_time()
        now = time.monotonic()
        rough = {each: self._rough_bytes(each) for each in watched}
        pause_s = max(_LOOK_PERIOD_S, (time.thread_time() - began) / _LOOK_PART)
        suspects = [
            each
            for each, used in rough.items()
            if used > each.limit_bytes and each.may_ask(used, now)
        ]
        if suspects or now >= self._search_at:
            snapshot = self._search(watched)
            for each in suspects:
                self._ask(each, each.find(snapshot))
        return pause_s

    def _rough_bytes(self, attempt: WatchedAttempt) -> int:
        """Add up the figures of the known processes, and notice their new children."""
        total = 0
        for pid in list(attempt.pids):
            used = rough_bytes(pid)
            if used is None:
                attempt.pids.discard(pid)
                continue
            total += used
            attempt.pids.update(_children(pid))
        return total

    def _search(self, watched: list[WatchedAttempt]) -> Snapshot:
        """Find the processes of each attempt in the process table."""
        began = time.thread_time()
        snapshot = Snapshot()
        for each in watched:
            each.pids = each.find(snapshot)
        took_s = time.thread_time() - began
        self._search_at = time.monotonic() + max(_SEARCH_PERIOD_S, took_s / _SEARCH_PART)
        return snapshot

    def _ask(self, attempt: WatchedAttempt, pids: set[int]) -> None:
        """Ask for the exact figures of an attempt; report it if they are above its limit."""
        began = time.thread_time()
        attempt.rough_bytes = sum(filter(None, map(rough_bytes, pids)))
        used = sum(map(exact_bytes, pids))
        took_s, now = time.thread_time() - began, time.monotonic()
        attempt.left_bytes = attempt.limit_bytes - used
        attempt.exact_at = now + took_s / _EXACT_PART
        attempt.urgent_at = now + took_s / _URGENT_PART
        if used <= attempt.limit_bytes:
            return
        with self._changed:
            if self._watched.pop(attempt.key, None) is not attempt:
                return
        self._over.append((attempt.key, used))
        os.kill(os.getpid(), signal.SIGCHLD)  # wakes the supervisor


def rough_bytes(pid: int) -> int | None:
    """Return the memory of one process that is in no file, with all that it shares; None once it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, _STATUS_BYTES)
    except OSError:  # it has just ended
        return None
    finally:
        os.close(fd)
    return _sum_of(text, (b"RssAnon:", b"RssShmem:"))


def exact_bytes(pid: int) -> int:
    """Return the part of a process in the memory that is in no file; each sharer has an equal part.

    A process of another user, by sudo, does not show that: then its own memory counts.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return _sum_of(file.read(), (b"Pss_Anon:", b"Pss_Shmem:"))
    except PermissionError:
        return rough_bytes(pid) or 0
    except OSError:
        return 0


def _sum_of(text: bytes, names: tuple[bytes, ...]) -> int:
    """Add up lines such as `RssAnon:  1234 kB`."""
    return sum(int(line.split()[1]) * _KIB for line in text.splitlines() if line.startswith(names))


def _children(pid: int) -> list[int]:
    """Return the children of a process's first thread."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
