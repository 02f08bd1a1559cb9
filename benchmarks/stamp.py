"""Jobs that record their own start and end."""

from __future__ import annotations

import array
import os
import shlex
import subprocess

from benchmarks.errors import BenchError
from benchmarks.peers import need_program

_SOURCE = os.path.join(os.path.dirname(__file__), "stamp.c")


def build_stamp(folder: str) -> str:
    """Build the program, and return its path."""
    program = os.path.join(folder, "stamp")
    compiler = need_program("gcc", "gcc")
    build = [compiler, "-O2", "-o", program, _SOURCE]
    # A static program starts fastest; not every machine has a static C library.
    for flags in (["-static"], []):
        if subprocess.run([*build, *flags], capture_output=True, check=False).returncode == 0:
            return program
    raise BenchError(f"gcc cannot build stamp.c; see why with: {shlex.join(build)}")


def read_stamps(path: str) -> list[tuple[int, int]]:
    """Return start and end of every job, in the order in which they began."""
    stamps = array.array("q")
    with open(path, "rb") as file:
        stamps.frombytes(file.read())
    return sorted(zip(stamps[::2], stamps[1::2], strict=True))
