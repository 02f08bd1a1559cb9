"""Finds the process that holds the lock of a home: its daemon, also where the daemon's socket is gone."""

from __future__ import annotations

import os

LOCK_NAME = "daemon.lock"


def daemon_pid(home: str) -> int | None:
    """The pid of the daemon that holds a home's lock; None if nobody holds it, 0 if the pid is unknown.

    The number in the file proves nothing by itself: the process must have this very file open.
    """
    import fcntl

    try:
        fd = os.open(f"{home}/{LOCK_NAME}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 20, 0)
        pid = int(text) if text.isdigit() else 0
        return pid if pid and _has_open(pid, os.fstat(fd)) else 0
    finally:
        os.close(fd)
    return None


def age_s(pid: int) -> float:
    """For how long a process has existed."""
    import time

    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def end_daemon(home: str, pid: int, patience_s: float) -> bool:
    """Ask the daemon that holds a home's lock to end, by a signal; whether it has ended in time."""
    import select
    import signal

    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if daemon_pid(home) != pid:  # it has ended, and its number may be another's
            return True
        signal.pidfd_send_signal(process, signal.SIGTERM)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(process)


def _has_open(pid: int, file: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            found = os.stat(f"{folder}/{name}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
            return True
    return False
