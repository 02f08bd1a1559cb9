"""Process trees, read from /proc: descent, process groups, and the cookie of the job in the environment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

COOKIE = "STOKER_COOKIE"
COOKIE_BYTES = COOKIE.encode()
MARKER = "STOKER_PART"
"""Variable of daemons, supervisors and warm workers: they belong to no job, even if a job started them."""
LINGER = "STOKER_LINGER"
"""Variable of jobs whose processes may go on after the job has ended."""
ON_CUT = "STOKER_ON_CUT"
FINISH = "finish"
"""Value of ON_CUT of jobs that their node does not end when it is cut off from the head."""
_MARKER_BYTES = MARKER.encode()
_LINGER_BYTES = LINGER.encode()
_FINISH_ENTRY = f"{ON_CUT}={FINISH}".encode()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
_SHELLS = frozenset(("ash", "bash", "dash", "fish", "ksh", "sh", "zsh"))


class Process(NamedTuple):
    """One process; `ticks` is the time of its start, in clock ticks since boot."""

    pid: int
    parent: int
    group: int
    session: int
    ticks: int


class ProcessMarks(NamedTuple):
    """Stoker's variables in the environment of a process. The cookie of the outermost job is first."""

    cookies: list[str]
    is_part: bool
    lingers: bool = False
    is_blank: bool = False  # no environment at all: none was given, or the process is in execve
    finishes: bool = False  # its node does not end it when it is cut off


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init."""
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
    """Return the direct children of this process that have not ended yet."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
            pids = [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {p.pid for p in processes().values() if p.parent == me}
    return {pid for pid in pids if find_process(pid) is not None}


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below one, parents first; none on a kernel without CONFIG_PROC_CHILDREN."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    for child in children:
        yield child
        yield from descendants(child)


def processes() -> dict[int, Process]:
    """Return every process that has not ended yet, by pid."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = find_process(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def find_process(pid: int) -> Process | None:
    """Return a process; None if it has ended."""
    fields = stat_fields(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def boot_ticks() -> int:
    """Return the time since boot, in the unit of the process table."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name; an empty list once the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    # The name in parentheses may contain blanks and parentheses.
    return text[text.rindex(b")") + 2 :].split()


def read_marks(pid: int) -> ProcessMarks:
    """Return Stoker's variables in the environment that a process was started with, if that is readable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ProcessMarks([], False)
    cookies: list[str] = []
    is_part = lingers = finishes = False
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == COOKIE_BYTES:
            cookies = value.decode("ascii", "replace").split("/")
        elif name == _MARKER_BYTES:
            is_part = True
        elif name == _LINGER_BYTES:
            lingers = True
        elif entry == _FINISH_ENTRY:
            finishes = True
    return ProcessMarks(cookies, is_part, lingers, not environ, finishes)


def is_foreign(marks: ProcessMarks, name: str) -> bool:
    """Whether a process belongs to another Stoker, which a job of the supervisor `name` has started."""
    if marks.is_part:
        return True
    return bool(marks.cookies) and not any(
        cookie.startswith(f"{name}:") for cookie in marks.cookies
    )


class Snapshot:
    """The process table of one moment, for several queries."""

    def __init__(self) -> None:
        self.table = processes()
        self._children: dict[int, list[int]] = {}
        for process in self.table.values():
            self._children.setdefault(process.parent, []).append(process.pid)
        self._marks: dict[int, ProcessMarks] = {}

    def marks(self, pid: int) -> ProcessMarks:
        """Return Stoker's variables of a process."""
        found = self._marks.get(pid)
        if found is None:
            found = self._marks[pid] = read_marks(pid)
        return found

    def below(self, pids: Iterable[int]) -> set[int]:
        """Return these processes and their descendants, except parts of Stoker and their jobs."""
        queue = [pid for pid in pids if pid in self.table]
        found: set[int] = set()
        while queue:
            pid = queue.pop()
            if pid not in found and not self.marks(pid).is_part:
                found.add(pid)
                queue += self._children.get(pid, ())
        return found

    def members(self, root: int, cookie: str, children: Iterable[int]) -> set[int]:
        """Return the living processes of a job: its group, session, descendants, and those with its cookie.

        `children` are the direct children of the supervisor. Only their trees are searched, so that no
        process outside of them is ever taken for a member.
        """
        return self.below(
            pid
            for pid in self.below(children)
            if (root and root in (pid, self.table[pid].group, self.table[pid].session))
            or cookie in self.marks(pid).cookies
        )

    def main_of(self, root: int, members: set[int]) -> set[int]:
        """Return the main process among the members of a job, whose first process is `root`.

        It is the first process; if that is a shell, the shell and the programs that it runs. All members
        if the first process has ended.
        """
        if root not in members:
            return members
        found: set[int] = set()
        queue = [root]
        while queue:
            pid = queue.pop()
            found.add(pid)
            if _program_of(pid) in _SHELLS:
                queue += [each for each in self._children.get(pid, ()) if each in members - found]
        return found

    def by_age(self, pids: Iterable[int]) -> list[Process]:
        """Return these processes, the oldest first, so that a shell is signalled before its command.

        In the other order, the shell would see its command end and start the next one.
        """
        return sorted((self.table[pid] for pid in pids), key=lambda each: (each.ticks, each.pid))

    def has_blank_leader(self) -> bool:
        """Whether the first process of any session has no environment at this moment."""
        return any(
            process.session == pid and self.marks(pid).is_blank
            for pid, process in self.table.items()
        )

    def by_cookie(self, prefix: str) -> dict[str, set[int]]:
        """Return this user's processes on the machine, by each of their cookies with this prefix."""
        found: dict[str, set[int]] = {}
        for pid in self.table:
            marks = self.marks(pid)
            for cookie in marks.cookies:
                if cookie.startswith(prefix) and not marks.is_part and is_own(pid):
                    found.setdefault(cookie, set()).add(pid)
        return found


def _program_of(pid: int) -> str:
    """Return the name of a process's program; an empty text if the process is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_own(pid: int) -> bool:
    """Whether a process belongs to this user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(pids: Iterable[int], signum: int) -> None:
    """Send a signal to each of these processes that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def kill_marked(cookie: str) -> None:
    """Kill every process of this machine with this cookie, until there is none."""
    while marked := Snapshot().by_cookie(cookie).get(cookie):
        send(marked, signal.SIGKILL)
        time.sleep(0.001)  # they are not our children: there is no wait for them
