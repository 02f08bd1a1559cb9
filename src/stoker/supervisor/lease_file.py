"""Lease file of a node: until when jobs may run without contact to the head.

A head that cannot reach a node must know when its jobs there have ended for certain. So the agent extends the
lease again and again, and when it expires, the supervisor ends the jobs. The file has a time of the boot
clock and the id of the boot; it outlives both processes. Standard library only, as the supervisor.
"""

from __future__ import annotations

import os
import time
import zlib

from stoker.supervisor import process_tree

CUT_OFF = "this machine was cut off from the head for too long, so its jobs were ended"
LEFT = "this machine was leaving the cluster, so its jobs were ended"
NODE_REASONS = frozenset((CUT_OFF, LEFT))
"""Reasons for which a node ends jobs that run elsewhere afterwards."""

_BYTES = 80
_MAX_READS = 100


class LeaseFile:
    """Reader of a lease file; reads the file again only when the known lease has expired."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._until_s = 0.0

    def left_s(self) -> float:
        """Return for how long jobs may still run; 0 if the lease has expired."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if now >= self._until_s:
            self._until_s = read(self._path)
        return max(0.0, self._until_s - now)


def read(path: str) -> float:
    """Return the end of the lease on the boot clock; 0 if there is none of this boot."""
    try:
        with open(path, "rb", buffering=0) as file:
            for _ in range(_MAX_READS):  # another process may be writing
                boot, until_s, check = os.pread(file.fileno(), _BYTES, 0).decode("ascii").split()
                if _check(f"{boot} {until_s}") == check:
                    return float(until_s) if boot == process_tree.boot_id() else 0.0
    except (OSError, ValueError):
        pass
    return 0.0


def write(path: str, until_s: float) -> None:
    """Set the end of the lease. Readers see either the old or the new one.

    The file is written in place, which also works on a full disk: that is no reason to end jobs.
    """
    text = f"{process_tree.boot_id()} {until_s:018.6f}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, f"{text} {_check(text)}\n".encode("ascii"), 0)
    finally:
        os.close(fd)


def _check(text: str) -> str:
    return f"{zlib.crc32(text.encode('ascii')):08x}"
