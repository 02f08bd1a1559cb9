"""Attempts whose first process has ended while others of their processes still run.

An attempt ends, and frees its slot, when its last process has ended. If it ends by itself, the processes
that it leaves get TERM after `MOMENT_S` and KILL after `LEFTOVER_GRACE_S`. Processes that may linger are left
alone and are not waited for. If the client ends the attempt, they have the rest of the client's grace and may
not linger.

A process without any sign of its attempt, such as the monitor of a container (`conmon`), counts as left by an
ended attempt only if no running attempt can have started it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stoker.supervisor import process_tree
from stoker.supervisor.journal import Ending
from stoker.supervisor.slot_queues import Attempt

LEFTOVER_GRACE_S = 5.0
MOMENT_S = 1.0  # helpers that end with their job need no signal
NEVER = float("inf")
_PAGE_BYTES = 2048  # a list of children that the kernel cuts short is longer
_MAX_NAMES = 256


class Remainder:
    """What is left of one attempt.

    `root` is the process group and session of its first process; 0 once they are empty, because the kernel
    may then reuse the number. `by_client` is whether the client is ending the attempt. Otherwise TERM is due
    at `term_at`, and `names` are the names of the processes that got it.
    """

    __slots__ = ("attempt", "by_client", "ending", "names", "root", "term_at")

    def __init__(self, attempt: Attempt, ending: Ending, root: int, *, by_client: bool) -> None:
        self.attempt = attempt
        self.ending = ending
        self.root = root
        self.by_client = by_client
        self.term_at = NEVER if by_client else time.monotonic() + MOMENT_S
        self.names: tuple[str, ...] = ()


class Leftovers:
    """Index of the children of this process that belong to attempts whose first process has ended.

    A process that loses its parent becomes a child of this process. So the list of children, one system call,
    shows after each end whether anything is left. `running` and `pids` are the supervisor's. With
    `lets_linger`, processes that may linger are waited for only if the client ends their attempt.
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
        self._owners: dict[int, str | None] = {}  # of each child that is not a first process
        self._guessed: set[int] = set()  # children without cookie and session of their attempt
        self._unsure: set[int] = set()  # children that one of several attempts may have started
        self._lingering: set[int] = set()
        self._last_ended: str | None = None
        me = os.getpid()
        try:
            self._fd = os.open(f"/proc/{me}/task/{me}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
            self._fd = -1

    def are_possible(self, key: str) -> bool:
        """Whether an attempt that has just ended may have left processes. Costs one system call."""
        known = len(self._running) + len(self._owners) - len(self._unsure)
        return self._list().count(b" ") != known or key in self._owners.values()

    def keep(self, remainder: Remainder) -> bool:
        """Wait for the processes that an attempt has left; False if there are none."""
        key = self._last_ended = remainder.attempt.key
        self.waiting[key] = remainder
        if not self._awaited(remainder, self._by_attempt(key)):
            del self.waiting[key]
            return False
        return True

    def forget(self, pid: int) -> None:
        """Forget a child that has ended; its own children belong to the same attempt."""
        owner = self._owners.pop(pid, None)
        self._guessed.discard(pid)
        self._unsure.discard(pid)
        self._lingering.discard(pid)
        if owner is not None:
            self._last_ended = owner

    def take_ended(self) -> list[Remainder]:
        """Remove and return the attempts of which nothing is left."""
        fallback = (
            self._last_ended if self._last_ended in self.waiting else next(iter(self.waiting))
        )
        held = self._by_attempt(fallback)
        over = []
        for key, remainder in self.waiting.items():
            left = self._awaited(remainder, held)
            if not left:
                over.append(key)
            elif remainder.root and not _has_member(remainder.root, left):
                remainder.root = 0
        return [self.waiting.pop(key) for key in over]

    def may_linger(self, key: str, marks: process_tree.ProcessMarks) -> bool:
        """Whether a process is left alone: it may linger, and its attempt ended by itself."""
        remainder = self.waiting.get(key)
        by_itself = remainder is not None and not remainder.by_client
        return by_itself and self._lets_linger and marks.lingers

    def owner(self, pid: int) -> str | None:
        """Return the attempt of a child; None if it is unknown."""
        return self._owners.get(pid)

    def may_be_of_running(self, pid: int) -> bool:
        """Whether a child without any sign of its attempt may belong to one that runs."""
        return pid in self._unsure and self._is_unsure(pid)

    def guessed(self, key: str) -> set[int]:
        """Return the children of an attempt that have neither its cookie nor its session."""
        for pid in [pid for pid in self._guessed if self._owners[pid] == key]:
            self._classify(pid, self._roots(), key)  # its own children may show by now whose it is
        return {pid for pid in self._guessed if self._owners[pid] == key}

    def _awaited(self, remainder: Remainder, held: dict[str | None, list[int]]) -> list[int]:
        """Return the children that an attempt waits for."""
        left = held.get(remainder.attempt.key, [])
        if remainder.by_client:
            return left
        return [pid for pid in left if pid not in self._lingering]

    def _by_attempt(self, fallback: str) -> dict[str | None, list[int]]:
        """Return the children that are no first processes, by attempt. Unmarked new ones go to `fallback`."""
        held: dict[str | None, list[int]] = {}
        roots = self._roots()
        for pid in map(int, self._list().split()):
            if pid in self._running:
                continue
            if pid not in self._owners or pid in self._guessed or pid in self._unsure:
                self._classify(pid, roots, self._owners.get(pid) or fallback)
            held.setdefault(self._owners[pid], []).append(pid)
        return held

    def _classify(self, pid: int, roots: dict[int, str], fallback: str) -> None:
        marks, process = process_tree.read_marks(pid), process_tree.find_process(pid)
        self._guessed.discard(pid)
        self._unsure.discard(pid)
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
        owner = self._find_by_children(pid) or self._find_by_lease(pid)
        if owner is None and self._is_unsure(pid):
            self._unsure.add(pid)
            self._owners[pid] = None
        else:
            self._guessed.add(pid)
            self._owners[pid] = owner or fallback

    def _roots(self) -> dict[int, str]:
        return {each.root: key for key, each in self.waiting.items() if each.root}

    def _find_by_children(self, pid: int) -> str | None:
        """Return the attempt whose cookie a descendant has, as the processes of a container may."""
        for below in process_tree.descendants(pid):
            for cookie in process_tree.read_marks(below).cookies:
                key = cookie.removeprefix(self.prefix)
                if key != cookie and key in self._pids:
                    return key
        return None

    def _find_by_lease(self, pid: int) -> str | None:
        """Return the attempt whose GPU lease a process has inherited, if that is one alone."""
        ended = [each.attempt for each in self.waiting.values()]
        attempts = [*self._running.values(), *ended]
        found = {each.key for each in attempts if _has_lease(pid, each)}
        return found.pop() if len(found) == 1 else None

    def _is_unsure(self, pid: int) -> bool:
        """Whether an attempt runs that was started before this process."""
        process = process_tree.find_process(pid)
        firsts = filter(None, map(process_tree.find_process, self._running))
        return process is not None and any(first.ticks <= process.ticks for first in firsts)

    def _list(self) -> bytes:
        """Return the pids of all children, each followed by a blank."""
        if self._fd < 0:
            me = os.getpid()
            found = [each.pid for each in process_tree.processes().values() if each.parent == me]
            return b"".join(b"%d " % pid for pid in found)
        data = os.pread(self._fd, 2 * _PAGE_BYTES, 0)
        if len(data) > _PAGE_BYTES:
            while more := os.pread(self._fd, 1 << 16, len(data)):
                data += more
        return data


def _has_lease(pid: int, attempt: Attempt) -> bool:
    """Whether a process has a descriptor of the leases with which an attempt was started."""
    for _action, fd, number in attempt.slot.lease_actions:
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), os.fstat(fd)):
                return True
        except OSError:
            continue
    return False


def _has_member(root: int, pids: list[int]) -> bool:
    processes = filter(None, map(process_tree.find_process, pids))
    return any(root in (process.group, process.session) for process in processes)


def names_of(pids: set[int]) -> tuple[str, ...]:
    """Return the names of processes in printable characters; at most `_MAX_NAMES`."""
    return tuple(sorted(filter(None, map(_name_of, pids)))[:_MAX_NAMES])


def _name_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read().rstrip(b"\n").decode("ascii", "replace")
    except OSError:
        return None
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in name) or "?"
