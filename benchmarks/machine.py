"""Description of the machine that the figures were measured on."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import resource
import sqlite3
import subprocess
import time

from benchmarks.report import Table

QUIET_SHARE = 0.05


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
            ("sched_autogroup", _autogroup()),
            ("load before", load),
        ],
    )


def describe_moment() -> str:
    """Return when and of what a figure was taken."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"Measured on {now:%Y-%m-%d at %H:%M} UTC, commit {_commit()}."


class Bystanders:
    """Tells how much of the machine was used by others since it was made.

    Noise may not be neutral: under sched_autogroup a job in a session of its own, as Stoker starts it,
    can get a larger share of a crowded CPU than those of xargs, which share one session.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._foreign_s = _foreign_cpu_s()

    def share(self) -> float:
        """Return the part of all cores' time that went to processes that are not ours."""
        _reap_all()  # what daemons that have ended used counts as ours only then
        wall_s = time.monotonic() - self._began
        cores = os.cpu_count() or 1
        return max(0.0, _foreign_cpu_s() - self._foreign_s) / (wall_s * cores)


def describe_noise(share: float) -> str:
    """Return what the bystanders took, and a warning where it is too much."""
    share_text = f"Other processes used {share:.0%} of the machine meanwhile"
    return (
        f"{share_text}."
        if share <= QUIET_SHARE
        else f"{share_text}: **TOO NOISY to trust the ratios**."
    )


def _foreign_cpu_s() -> float:
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    busy_s = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return busy_s - sum(usage.ru_utime + usage.ru_stime for usage in ours)


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _autogroup() -> str:
    try:
        with open("/proc/sys/kernel/sched_autogroup_enabled", encoding="ascii") as file:
            return "on" if file.read().strip() == "1" else "off"
    except FileNotFoundError:
        return "none"


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _commit() -> str:
    # What was measured before is written into the tree while more is measured.
    changed = ["git", "status", "--porcelain", "--", ".", ":!benchmarks/RESULTS.md"]
    try:
        commit, changes = (
            subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
            for ask in (["git", "describe", "--always"], changed)
        )
    except FileNotFoundError:
        return "unknown"
    return f"{commit or 'unknown'}{', with changes' if changes else ''}"
