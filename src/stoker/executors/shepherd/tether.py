"""How long jobs may run without word from the machine that placed them.

A head that can no longer reach a machine has to know from when on nothing of its jobs runs there. So
whoever speaks for the head puts off, again and again, the moment until which they may; when it has
passed, the shepherd ends them. The moment is one of the boot clock, in a file, where it outlives
both, with the boot that it counts from. Standard library only: the shepherd has nothing else.
"""

from __future__ import annotations

import os
import time

from stoker.executors.shepherd import trees

CUT_OFF = "this machine was cut off from the head for too long, so its jobs were ended"


class Tether:
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
        with open(path, encoding="ascii") as file:
            boot, until_s = file.read().split()
        return float(until_s) if boot == trees.boot_id() else 0.0
    except (OSError, ValueError):
        return 0.0


def put_off(path: str, until_s: float) -> None:
    """Let jobs run until then; whoever reads the file finds the one moment or the other."""
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(f"{trees.boot_id()} {until_s}")
    os.replace(f"{path}.new", path)
