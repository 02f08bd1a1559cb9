"""CPU time of a cluster by its parts: where a job's time goes when all hosts share one machine."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.netns_hosts import Hosts

JOBS = "the jobs themselves"
# Words in the command line of a process by which its part is known; the first that fits counts.
_PARTS = {
    "supervisors": ("stoker.supervisor.daemon_mode",),
    "daemon": (" stoker.daemon",),
    "bridge": (" stoker.bridge ",),
    "agents": ("ray::Agent",),
    "Ray": ("gcs/gcs_server", "raylet/raylet"),
}
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_by_part(hosts: Hosts) -> dict[str, float]:
    """Return the CPU seconds so far of each part; supervisors have reaped the jobs."""
    found: dict[str, float] = defaultdict(float)
    for host in hosts.hosts:
        for words, fields in _processes(f"/proc/{host.init}/root/proc"):
            part = _part(words)
            if part is None:
                continue
            own, of_children = sum(fields[11:13]), sum(fields[13:15])
            found[part] += own / _TICKS
            if part == "supervisors":
                found[JOBS] += of_children / _TICKS
    return found


def _part(words: str) -> str | None:
    return next(
        (part for part, marks in _PARTS.items() if any(mark in words for mark in marks)), None
    )


def _processes(proc: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the command line of each process and the numbers of its status, from its parent's pid on."""
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(f"{proc}/{name}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace")
                with open(f"{proc}/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            yield words, [0, *map(int, fields[1:])]
