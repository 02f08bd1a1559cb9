"""How long jobs may run without word from the machine that placed them.

A head that can no longer reach a machine has to know from when on nothing of its jobs runs there. So
whoever speaks for the head puts off, again and again, the moment until which they may; when it has
passed, the supervisor ends them. The moment is one of the boot clock, in a file, where it outlives
both, with the boot that it counts from. Standard library only: the supervisor has nothing else.
"""

from __future__ import annotations

import os
import time
import zlib

from stoker.supervisor import process_tree

CUT_OFF = "this machine was cut off from the head for too long, so its jobs were ended"
LEFT = "this machine was leaving the cluster, so its jobs were ended"
PARTING = frozenset((CUT_OFF, LEFT))
"""Why jobs end here that are to run elsewhere."""

_BYTES = 80
_READINGS = 100


class LeaseFile:
    """Reads the moment, and reads it anew only once it has passed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._until_s = 0.0

    def left_s(self) -> float:
        """For how long jobs may still run; 0 if they may not."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now >= self._until_s:
            self._until_s = read(self._path)
        return max(0.0, self._until_s - now)


def read(path: str) -> float:
    """The moment on file; the beginning of time if there is none, or only one of an earlier boot."""
    try:
        with open(path, "rb", buffering=0) as file:
            for _ in range(_READINGS):  # somebody may be writing
                boot, until_s, check = os.pread(file.fileno(), _BYTES, 0).decode("ascii").split()
                if _check(f"{boot} {until_s}") == check:
                    return float(until_s) if boot == process_tree.boot_id() else 0.0
    except (OSError, ValueError):
        pass
    return 0.0


def put_off(path: str, until_s: float) -> None:
    """Let jobs run until then; whoever reads the file finds the one moment or the other.

    It is written in place, where there is room also when the disk is full: that is no reason to end jobs.
    """
    moment = f"{process_tree.boot_id()} {until_s:018.6f}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, f"{moment} {_check(moment)}\n".encode("ascii"), 0)
    finally:
        os.close(fd)


def _check(moment: str) -> str:
    return f"{zlib.crc32(moment.encode('ascii')):08x}"
