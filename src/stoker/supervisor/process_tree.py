"""Whole process trees, as /proc tells them: who descends from whom, and which job's cookie they carry."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

COOKIE = "STOKER_COOKIE"
COOKIE_BYTES = COOKIE.encode()
MARKER = "STOKER_PART"
"""Set in the environment of a daemon and its supervisor: no job owns them, wherever they were started."""
LINGER = "STOKER_LINGER"
"""Set in the environment of a job whose leftovers may stay."""
_MARKER_BYTES = MARKER.encode()
_LINGER_BYTES = LINGER.encode()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One line of the process table; `ticks` since boot tell when it was started."""

    pid: int
    parent: int
    group: int
    session: int
    ticks: int


class ProcessMarks(NamedTuple):
    """What the environment a process was started with says about it; cookies are outermost job first."""

    cookies: list[str]
    is_part: bool
    lingers: bool = False
    is_blank: bool = False  # it was started with nothing, or is just exchanging its program


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_ended(children: set[int]) -> None:
    """Reap the children of this process that have ended, and drop them from the set."""
    for pid in list(children):
        try:
            gone, _status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            gone = pid
        if gone:
            children.discard(pid)


def living_children() -> set[int]:
    """Direct children of this process that have not ended yet."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
            pids = [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {p.pid for p in processes().values() if p.parent == me}
    return {pid for pid in pids if look(pid) is not None}


def processes() -> dict[int, Process]:
    """Every process that has not ended yet."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = look(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def look(pid: int) -> Process | None:
    """One process, unless it has ended."""
    fields = stat_fields(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def boot_ticks() -> int:
    """The time since boot in the unit of the process table."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


def boot_id() -> str:
    """What tells this boot of the machine from all others."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[bytes]:
    """What /proc says of a process from its state on; nothing once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    # The name in parentheses may hold anything, blanks and parentheses too.
    return text[text.rindex(b")") + 2 :].split()


def is_outside(pid: int, ancestor: int) -> bool:
    """Whether a living process is neither another one nor among its descendants."""
    while pid != ancestor:
        process = look(pid)
        if process is None:
            return False  # it has ended, or its parent has and it is about to get another
        if process.parent == 0:
            return True
        pid = process.parent
    return False


def marks_of(pid: int) -> ProcessMarks:
    """What a process was marked with when it was started, as far as that can be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ProcessMarks([], False)
    cookies: list[str] = []
    is_part = lingers = False
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == COOKIE_BYTES:
            cookies = value.decode("ascii", "replace").split("/")
        elif name == _MARKER_BYTES:
            is_part = True
        elif name == _LINGER_BYTES:
            lingers = True
    return ProcessMarks(cookies, is_part, lingers, not environ)


def is_foreign(marks: ProcessMarks, name: str) -> bool:
    """Whether a process is another Stoker's that a job of `name` has started, or a job of that Stoker's."""
    if marks.is_part:
        return True
    return bool(marks.cookies) and not any(
        cookie.startswith(f"{name}:") for cookie in marks.cookies
    )


class Snapshot:
    """The process table of one moment, for several questions."""

    def __init__(self) -> None:
        self.table = processes()
        self._children: dict[int, list[int]] = {}
        for process in self.table.values():
            self._children.setdefault(process.parent, []).append(process.pid)
        self._marks: dict[int, ProcessMarks] = {}

    def marks(self, pid: int) -> ProcessMarks:
        """What a process is marked with."""
        found = self._marks.get(pid)
        if found is None:
            found = self._marks[pid] = marks_of(pid)
        return found

    def below(self, pids: Iterable[int]) -> set[int]:
        """These processes and all that descend from them, without parts of Stoker and their jobs."""
        queue = [pid for pid in pids if pid in self.table]
        found: set[int] = set()
        while queue:
            pid = queue.pop()
            if pid not in found and not self.marks(pid).is_part:
                found.add(pid)
                queue += self._children.get(pid, ())
        return found

    def members(self, root: int, cookie: str, flock: Iterable[int]) -> set[int]:
        """Every living process of a job: its group, its session, its descendants, and bearers of its cookie.

        `flock` are the direct children of the supervisor: only their trees are searched, so that
        nothing outside can ever be taken for a member.
        """
        return self.below(
            pid
            for pid in self.below(flock)
            if (root and root in (pid, self.table[pid].group, self.table[pid].session))
            or cookie in self.marks(pid).cookies
        )

    def by_age(self, pids: Iterable[int]) -> list[Process]:
        """These processes, the oldest first: a shell is signalled before the command it waits for.

        The other way round it would see its command end, and go on to the next one.
        """
        return sorted((self.table[pid] for pid in pids), key=lambda each: (each.ticks, each.pid))

    def has_blank_leader(self) -> bool:
        """Whether the first process of any session shows no environment at this moment."""
        return any(
            process.session == pid and self.marks(pid).is_blank
            for pid, process in self.table.items()
        )

    def bearers(self, prefix: str) -> dict[str, set[int]]:
        """This user's processes on the whole machine by each of their cookies that begins so."""
        found: dict[str, set[int]] = {}
        for pid in self.table:
            marks = self.marks(pid)
            for cookie in marks.cookies:
                if cookie.startswith(prefix) and not marks.is_part and is_own(pid):
                    found.setdefault(cookie, set()).add(pid)
        return found


def is_own(pid: int) -> bool:
    """Whether a process is this user's."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def members(root: int, cookie: str, flock: Iterable[int]) -> set[int]:
    """Every living process of a job, now."""
    return Snapshot().members(root, cookie, flock)


def send(pids: Iterable[int], signum: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def kill_marked(cookie: str) -> None:
    """Kill every process of this machine that carries a cookie, until none does."""
    while marked := Snapshot().bearers(cookie).get(cookie):
        send(marked, signal.SIGKILL)
        time.sleep(0.001)  # they are not ours to wait for
