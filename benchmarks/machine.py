"""What the figures were taken on."""

from __future__ import annotations

import datetime
import os
import platform
import sqlite3
import subprocess

from benchmarks.report import Table


def describe_machine(file_system: str) -> Table:
    """Return the machine, without its name."""
    now = datetime.datetime.now(datetime.timezone.utc)
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return Table(
        ("machine", ""),
        [
            ("date", f"{now:%Y-%m-%d %H:%M} UTC"),
            ("commit", _commit()),
            ("CPU", f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores"),
            ("memory", f"{_memory_bytes() / 2**30:.1f} GiB"),
            ("kernel", f"{platform.system()} {platform.release()}"),
            ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
            ("SQLite", sqlite3.sqlite_version),
            ("file system", file_system),
            ("load before", load),
        ],
    )


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _commit() -> str:
    ask = ["git", "describe", "--always", "--dirty=, with changes"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
