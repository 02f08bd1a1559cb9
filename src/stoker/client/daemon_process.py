"""Finds the daemon of a home by its lock, even if the daemon's socket is gone."""

from __future__ import annotations

import os

from stoker.pid_lock import holder_pid


def lock_path(home: str) -> str:
    """Return the path of the file that the daemon of a home locks."""
    return f"{home}/daemon.lock"


def daemon_pid(home: str) -> int | None:
    """Return the pid of the daemon of a home; None if there is none, 0 if its pid is unknown."""
    return holder_pid(lock_path(home))


def age_s(pid: int) -> float:
    """Return the age of a process; 0 if it is gone."""
    import time

    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
