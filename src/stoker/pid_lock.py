"""Lock files that name their holder, so that one process of a kind runs for each home.

The holder locks the file until it ends, and writes its pid into it.
"""

from __future__ import annotations

import os


def take(path: str) -> int | None:
    """Lock a file for this process. Returns its descriptor; None if another process holds the lock."""
    import contextlib
    import fcntl
    import time

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    for pause_s in (0.01, 0.02, 0.0):  # `holder_pid` holds the lock for a moment
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
        else:
            with contextlib.suppress(OSError):  # a full disk is no reason not to run
                os.ftruncate(fd, os.pwrite(fd, str(os.getpid()).encode(), 0))
            return fd
    os.close(fd)
    return None


def holder_pid(path: str) -> int | None:
    """Return the pid of the process that holds a lock; None if there is none, 0 if its pid is unknown.

    The pid in the file proves nothing by itself: the process must have this very file open.
    """
    import fcntl

    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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


def end_holder(path: str, pid: int, timeout_s: float) -> bool:
    """Ask the process that holds a lock to end, by SIGTERM. Returns whether it has ended in time."""
    import signal

    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if holder_pid(path) != pid:  # it has ended, and another process may have its pid
            return True
        signal.pidfd_send_signal(process, signal.SIGTERM)
        return has_ended(process, timeout_s)
    except ProcessLookupError:
        return True
    finally:
        os.close(process)


def has_ended(pidfd: int, timeout_s: float) -> bool:
    """Wait for the end of a process. Returns whether it has ended in time."""
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


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
