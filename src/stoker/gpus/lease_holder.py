"""Lookup of the process and user that hold a GPU's lease.

The kernel's list of locks gives the process; the process table gives its user. Every user of the machine
can write the note in a lease file, so the note only adds what the process does and since when, cut to a
few printable characters.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stoker.accounts import name_of, printable
from stoker.core.durations import format_roughly
from stoker.gpus.lease import open_to_read

_NOTE_BYTES = 1024
_TEXT_CHARACTERS = 64
_MOST_PID = 1 << 22  # PID_MAX_LIMIT of the kernel
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SEEN_FILES = 256
_UNKNOWN_USER = "?"
_UNKNOWN_WHAT = "another Stoker"


class Holder(NamedTuple):
    """The process that holds a lease. An unproven user is "?"; an unknown pid or time is 0."""

    pid: int
    user: str
    what: str
    since: float

    @property
    def text(self) -> str:
        """The holder as tables show it: `me: stoker-1 (pid 7, 12m)`."""
        held_for = format_roughly(time.time() - self.since) if self.since else None
        known = ", ".join(filter(None, [f"pid {self.pid}" if self.pid else None, held_for]))
        return f"{self.user}: {self.what}" + (f" ({known})" if known else "")

    def __str__(self) -> str:
        whose = "an unknown user" if self.user == _UNKNOWN_USER else self.user
        return f"{whose}'s {self.what}" + (f" (pid {self.pid})" if self.pid else "")


class _Note(NamedTuple):
    pid: int = 0
    what: str = _UNKNOWN_WHAT
    since: float = 0.0


UNSEEN = -1
"""Stands for the user of a process that this machine hides."""

# By file: the process that had it locked, and the boot-clock time at which this process first saw that.
_seen: dict[tuple[int, int], tuple[int, float]] = {}


def holder(key: str) -> Holder | None:
    """Return the process that holds a GPU now; None if there is none."""
    found = None
    for fd in open_to_read(key):
        if found is None and _is_locked(fd):
            found = _describe(fd)
        os.close(fd)
    return found


def holding_users(keys: Iterable[str]) -> dict[str, int]:
    """Return the uid of the user that holds each of these GPUs, as far as the machine shows it."""
    locks = read_locks()
    found = {}
    for key in keys:
        for fd in open_to_read(key):
            pid = None if key in found else _find_lock(fd, locks)
            uid = None if pid is None else _uid_of(pid, _first_seen(fd, pid))
            if uid is not None:
                found[key] = uid
            os.close(fd)
    return found


def locking_user(fd: int, locks: Mapping[tuple[int, int], int]) -> int | None:
    """Return the uid of the process that has locked a file, according to `read_locks`.

    UNSEEN if the machine hides the process; None if it has ended, and another one keeps the lock.
    """
    pid = _find_lock(fd, locks)
    if pid is None:
        return UNSEEN
    uid = _uid_of(pid, _first_seen(fd, pid))
    return UNSEEN if uid is None and _is_hidden(pid) else uid


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _describe(fd: int) -> Holder:
    note = _read_note(fd)
    pid = _locking_pid(fd)
    uid = None if pid is None else _uid_of(pid, _first_seen(fd, pid))
    user = _UNKNOWN_USER if uid is None else name_of(uid)
    return Holder(pid or note.pid, user, note.what, note.since)


def _read_note(fd: int) -> _Note:
    try:
        found = json.loads(os.pread(fd, _NOTE_BYTES, 0))
    except (OSError, ValueError, RecursionError):
        return _Note()
    if not isinstance(found, dict):
        return _Note()
    pid, what, since = found.get("pid"), found.get("what"), found.get("since")
    return _Note(
        pid if type(pid) is int and 0 < pid <= _MOST_PID else 0,
        (printable(what, _TEXT_CHARACTERS) if isinstance(what, str) else "") or _UNKNOWN_WHAT,
        float(since) if isinstance(since, int | float) and 0 < since <= time.time() else 0.0,
    )


def _locking_pid(fd: int) -> int | None:
    """Return the process that locked a file, according to the kernel; None if it is not visible here.

    The process may have ended: a lock lives as long as any process has its descriptor open.
    """
    return _find_lock(fd, read_locks())


def _find_lock(fd: int, locks: Mapping[tuple[int, int], int]) -> int | None:
    status = os.fstat(fd)
    pid = locks.get((status.st_dev, status.st_ino))
    if pid is None and (device := _mount_device(fd)) is not None:
        pid = locks.get((device, status.st_ino))
    return pid or None


def read_locks() -> dict[tuple[int, int], int]:
    """Return the process of each flock, by device and inode; 0 for a process that is not visible here."""
    found: dict[tuple[int, int], int] = {}
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if words[1] == "FLOCK":
                    found.setdefault(_file_of(words[5]), max(0, int(words[4])))
    except (OSError, ValueError, IndexError):
        pass
    return found


def _file_of(word: str) -> tuple[int, int]:
    major, minor, inode = word.split(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _mount_device(fd: int) -> int | None:
    """Return the device of a file's mount, which the kernel lists for locks; stat differs on btrfs."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            mount = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            found = next(line.split()[2] for line in file if line.startswith(f"{mount} "))
        major, minor = found.split(":")
        return os.makedev(int(major), int(minor))
    return None


def _first_seen(fd: int, pid: int) -> float:
    """Return the boot-clock time at which this process first saw that `pid` had locked the file."""
    status = os.fstat(fd)
    file = (status.st_dev, status.st_ino)
    if file not in _seen or _seen[file][0] != pid:
        if len(_seen) >= _SEEN_FILES:
            _seen.clear()
        _seen[file] = (pid, time.clock_gettime(time.CLOCK_BOOTTIME))
    return _seen[file][1]


def _is_hidden(pid: int) -> bool:
    """Whether a process lives of which /proc shows nothing."""
    if os.path.exists(f"/proc/{pid}/stat"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _uid_of(pid: int, seen_at_s: float) -> int | None:
    """Return the user of a process; None if it is gone, hidden, or younger than its lock.

    A younger process only reuses the pid: it has nothing to do with the lock.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open(f"/proc/{pid}/status", "rb") as file:
            uid = next(int(line.split()[1]) for line in file if line.startswith(b"Uid:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return uid if ticks / _TICKS_PER_S <= seen_at_s else None
