"""Whole process trees, as /proc tells them: who descends from whom, and which job's cookie they carry."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import NamedTuple

COOKIE = "STOKER_COOKIE"
COOKIE_BYTES = COOKIE.encode()
_PR_SET_CHILD_SUBREAPER = 36


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def living_children() -> set[int]:
    """Direct children of this process that have not ended yet."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
            pids = [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return {p.pid for p in processes().values() if p.parent == me}
    return {pid for pid in pids if _stat(pid) is not None}


def processes() -> dict[int, Process]:
    """Every process that has not ended yet."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _stat(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def _stat(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, blanks and parentheses too.
    state, parent, group, session = text[text.rindex(b")") + 2 :].split(b" ", 4)[:4]
    if state in (b"Z", b"X"):
        return None
    return Process(pid, int(parent), int(group), int(session))


def is_outside(pid: int, ancestor: int) -> bool:
    """Whether a living process is neither another one nor among its descendants."""
    while pid != ancestor:
        process = _stat(pid)
        if process is None:
            return False  # it has ended, or its parent has and it is about to get another
        if process.parent == 0:
            return True
        pid = process.parent
    return False


def cookie_of(pid: int) -> str | None:
    """The cookies a process was started with, outermost job first; None if it carries none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    prefix = COOKIE_BYTES + b"="
    for entry in entries:
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("ascii", "replace")
    return None


def members(root: int, cookie: str, flock: set[int]) -> set[int]:
    """Every living process of a job: its group, its session, its descendants, and bearers of its cookie.

    `flock` are the direct children of the shepherd: only their trees are searched for the cookie, so
    that nothing outside can ever be taken for a member.
    """
    table = processes()
    descend: dict[int, list[int]] = {}
    for process in table.values():
        descend.setdefault(process.parent, []).append(process.pid)

    def below(pids: set[int]) -> set[int]:
        found, queue = set(pids), list(pids)
        while queue:
            for child in descend.get(queue.pop(), ()):
                if child not in found:
                    found.add(child)
                    queue.append(child)
        return found

    reach = below(flock & set(table))
    seeds = {
        pid
        for pid in reach
        if pid == root
        or table[pid].group == root
        or table[pid].session == root
        or cookie in (cookie_of(pid) or "").split("/")
    }
    return below(seeds)


def send(pids: set[int], signum: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def kill_marked(cookie: str) -> None:
    """Kill every process of this machine that carries a cookie, until none does."""
    while marked := {pid for pid in processes() if cookie in (cookie_of(pid) or "").split("/")}:
        send(marked, signal.SIGKILL)
        time.sleep(0.001)  # they are not ours to wait for
