"""Finds out why an attempt failed, from its log, its disks and the kernel's counters."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Sequence

import msgspec

from stoker.core.failure import Facts, Failure, FailureClass, was_killed

_TAIL_BYTES = 32 * 1024
_TIMEOUT_S = 0.25
_FULL_BYTES = 64 << 20


class FailureInspection:
    """Examines failed attempts.

    Logs and folders can be on a file system that hangs. An examination therefore has a time limit, and
    while one hangs, the next ones use only the wait status.
    """

    def __init__(self) -> None:
        self._oom_kills = count_oom_kills()
        self._hangs: threading.Thread | None = None

    def examine(
        self,
        status: int,
        log: str | None,
        folders: Sequence[str] = (),
        known: Facts | None = None,
        since: int = 0,
    ) -> Failure:
        """Classify a failure; `folders` are those that the attempt may have filled.

        The first `since` bytes of the log are from earlier attempts.
        """
        # Late: its patterns take long to compile, and most runs do not need them.
        from stoker.core.diagnosis import classify

        known = known or Facts()
        found: list[Failure] = []
        if self._hangs is not None and self._hangs.is_alive():
            return classify(status, "", known)
        if log is None and not was_killed(status):
            return _mark_mute(status, classify(status, "", known))

        def look() -> None:
            tail = read_tail(log, since) if log is not None else None
            facts = self._add_facts(status, tail or "", folders, known)
            failure = classify(status, tail or "", facts)
            found.append(failure if tail is not None else _mark_mute(status, failure))

        thread = threading.Thread(target=look, name="inspection", daemon=True)
        thread.start()
        thread.join(_TIMEOUT_S)
        self._hangs = thread if thread.is_alive() else None
        return found[0] if found else classify(status, "", known)

    def _add_facts(self, status: int, tail: str, folders: Sequence[str], known: Facts) -> Facts:
        from stoker.core.log_symptoms import find_symptom

        full_disk = None
        if find_symptom(tail).kind is FailureClass.DISK_FULL:
            full_disk = next((folder for folder in folders if is_full(folder)), None)
        oom_kills = False
        if was_killed(status):
            before, self._oom_kills = self._oom_kills, count_oom_kills()
            oom_kills = self._oom_kills > before
        return msgspec.structs.replace(known, oom_kills=oom_kills, full_disk=full_disk)


def _mark_mute(status: int, failure: Failure) -> Failure:
    """Mark a failure without any output whose process could have written some."""
    ended_itself = status & 0x7F in (0, signal.SIGABRT) and not was_killed(status)
    is_mute = ended_itself and failure.kind is FailureClass.ERROR
    return msgspec.structs.replace(failure, is_mute=is_mute)


def read_tail(path: str, since: int = 0) -> str | None:
    """Read the end of a log after its first `since` bytes; None if it is no regular file."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        begun = since if since <= found.st_size else 0  # else it was truncated meanwhile
        data = os.pread(fd, _TAIL_BYTES, max(begun, found.st_size - _TAIL_BYTES))
    except OSError:
        return None
    finally:
        os.close(fd)
    return data.decode("utf-8", "replace")


def size_of(path: str) -> int:
    """The size of a log in bytes; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def is_full(folder: str) -> bool:
    """Whether a folder's file system has almost no space or no inodes left."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _FULL_BYTES or (
        found.f_files > 0 and not found.f_favail
    )


def count_oom_kills() -> int:
    """The kernel's count of out-of-memory kills since boot; 0 if unknown."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0
