"""Attempts whose first process has ended while other processes of theirs still run.

An attempt is over when the last of its processes is gone; until then it keeps its place. What it leaves
when it ends by itself gets TERM after `MOMENT_S` and KILL after `LEFTOVER_GRACE_S`, except for processes that
may linger: those are left alone and not waited for. What is left of an attempt that the client is ending has
the rest of the grace that the client gave, and may not linger.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending
from stoker.supervisor.slot_queues import Attempt

LEFTOVER_GRACE_S = 5.0
# Of that they have this long to end unasked, as helpers do that end with their job.
MOMENT_S = 1.0
NEVER = float("inf")
_PAGE_BYTES = 2048  # a list of children that is cut short is longer than this
_MOST_NAMES = 256


class Remainder:
    """What is left of one attempt.

    `root` is the process group and session of its first process; 0 once no process is in them, because
    the number may then be used again. `is_asked` is whether the client is ending the attempt; otherwise it
    gets TERM at `term_at`, and `names` are those of the processes that were signalled for it.
    """

    __slots__ = ("attempt", "ending", "is_asked", "names", "root", "term_at")

    def __init__(self, attempt: Attempt, ending: Ending, root: int, *, is_asked: bool) -> None:
        self.attempt = attempt
        self.ending = ending
        self.root = root
        self.is_asked = is_asked
        self.term_at = NEVER if is_asked else time.monotonic() + MOMENT_S
        self.names: tuple[str, ...] = ()


class Leftovers:
    """Knows which children of this process belong to attempts whose first process has ended.

    A process that loses its parent becomes a child of this process. So the list of the own children, one
    system call, tells after each end whether anything is left. `running` and `pids` are the supervisor's.
    With `lets_linger`, processes that may linger are waited for only where the client ends their attempt.
    """

    def __init__(
        self,
        running: dict[int, Attempt],
        pids: dict[str, int],
        is_foreign: Callable[[process_tree.ProcessMarks], bool],
        *,
        lets_linger: bool,
    ) -> None:
        self.waiting: dict[str, Remainder] = {}
        self.prefix = ""
        self._running = running
        self._pids = pids
        self._is_foreign = is_foreign
        self._lets_linger = lets_linger
        self._owners: dict[int, str | None] = {}  # of every child that is no first process
        self._guessed: set[int] = set()  # those that show nothing of their attempt
        self._lingering: set[int] = set()
        self._heir: str | None = None
        me = os.getpid()
        try:
            self._fd = os.open(f"/proc/{me}/task/{me}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
            self._fd = -1

    def are_possible(self, key: str) -> bool:
        """Whether an attempt that has just ended may have left processes. Costs one system call."""
        known = len(self._running) + len(self._owners)
        return self._list().count(b" ") != known or key in self._owners.values()

    def keep(self, remainder: Remainder) -> bool:
        """Wait for what an attempt has left; False if nothing is left of it."""
        key = self._heir = remainder.attempt.key
        if not self._awaited(remainder, self._held(key)):
            return False
        self.waiting[key] = remainder
        return True

    def forget(self, pid: int) -> None:
        """A child is gone; what it leaves in turn belongs where it did."""
        owner = self._owners.pop(pid, None)
        self._guessed.discard(pid)
        self._lingering.discard(pid)
        if owner is not None:
            self._heir = owner

    def gone(self) -> list[Remainder]:
        """Take out the attempts of which nothing is left."""
        heir = self._heir if self._heir in self.waiting else next(iter(self.waiting))
        held = self._held(heir)
        over = []
        for key, remainder in self.waiting.items():
            left = self._awaited(remainder, held)
            if not left:
                over.append(key)
            elif remainder.root and not _has_member(remainder.root, left):
                remainder.root = 0
        return [self.waiting.pop(key) for key in over]

    def may_linger(self, key: str, marks: process_tree.ProcessMarks) -> bool:
        """Whether a process of an attempt is left alone: it may linger, and the attempt ended by itself."""
        remainder = self.waiting.get(key)
        by_itself = remainder is not None and not remainder.is_asked
        return by_itself and self._lets_linger and marks.lingers

    def owner(self, pid: int) -> str | None:
        """The attempt that a child belongs to, as far as it was asked for."""
        return self._owners.get(pid)

    def guessed(self, key: str) -> set[int]:
        """The children of an attempt that show nothing of it."""
        return {pid for pid in self._guessed if self._owners[pid] == key}

    def _awaited(self, remainder: Remainder, held: dict[str | None, list[int]]) -> list[int]:
        """The children for which an attempt is waited for."""
        left = held.get(remainder.attempt.key, [])
        if remainder.is_asked:
            return left
        return [pid for pid in left if pid not in self._lingering]

    def _held(self, fallback: str) -> dict[str | None, list[int]]:
        """All children that are no first process, by their attempt; unmarked new ones are `fallback`'s."""
        held: dict[str | None, list[int]] = {}
        roots = {each.root: key for key, each in self.waiting.items() if each.root}
        for pid in map(int, self._list().split()):
            if pid in self._running:
                continue
            if pid not in self._owners or pid in self._guessed:
                self._classify(pid, roots, self._owners.get(pid) or fallback)
            held.setdefault(self._owners[pid], []).append(pid)
        return held

    def _classify(self, pid: int, roots: dict[int, str], fallback: str) -> None:
        marks, process = process_tree.marks_of(pid), process_tree.look(pid)
        self._guessed.discard(pid)
        if self._is_foreign(marks):
            self._owners[pid] = None
            return
        if self._lets_linger and marks.lingers:
            self._lingering.add(pid)
        for cookie in marks.cookies:
            key = cookie.removeprefix(self.prefix)
            if key != cookie:
                self._owners[pid] = key if key in self._pids else None
                return
        for number in () if process is None else (process.group, process.session):
            first = self._running.get(number)
            owner = roots.get(number) if first is None else first.key
            if owner is not None:
                self._owners[pid] = owner
                return
        self._guessed.add(pid)
        self._owners[pid] = fallback

    def _list(self) -> bytes:
        """The pids of all children, each with a blank behind it."""
        if self._fd < 0:
            me = os.getpid()
            found = [each.pid for each in process_tree.processes().values() if each.parent == me]
            return b"".join(b"%d " % pid for pid in found)
        data = os.pread(self._fd, 2 * _PAGE_BYTES, 0)
        if len(data) > _PAGE_BYTES:
            while more := os.pread(self._fd, 1 << 16, len(data)):
                data += more
        return data


def _has_member(root: int, pids: list[int]) -> bool:
    processes = filter(None, map(process_tree.look, pids))
    return any(root in (process.group, process.session) for process in processes)


def names_of(pids: set[int]) -> tuple[str, ...]:
    """What processes are called, in words that are safe to show; at most `_MOST_NAMES` of them."""
    return tuple(sorted(filter(None, map(_name_of, pids)))[:_MOST_NAMES])


def _name_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().rstrip(b"\n").decode("ascii", "replace")
    except OSError:
        return None
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in name) or "?"
