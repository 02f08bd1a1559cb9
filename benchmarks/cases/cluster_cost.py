"""What a cluster costs each machine in memory, and how late the log of a job on a node is on the head."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.cases.cluster import HOSTS, open_hosts, open_stoker
from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from benchmarks.measure import Spread
    from cluster.netns_hosts import Hosts

ROUNDS = 5
LINES = 200
HEAD_MB, NODE_MB, LATE_MS = 250.0, 150.0, 100.0
_SETTLE_S = 5.0  # after a start, Ray still allocates
_PATIENCE_S = 120.0
# Writes its time at moments that differ from those at which anything looks.
_JOB = f"""
import random, time
for _ in range({LINES}):
    time.sleep(random.uniform(0.02, 0.2))
    print(time.time(), flush=True)
"""
# Prints by how much each line is late.
_FOLLOWER = """
import subprocess, sys, time
words = [sys.executable, "-m", "stoker", "log", "-f", sys.argv[1]]
follower = subprocess.Popen(words, stdout=subprocess.PIPE)
for line in follower.stdout:
    print(time.time() - float(line))
sys.exit(follower.wait())
"""
_PSS = "for file in /proc/[0-9]*/smaps_rollup; do grep ^Pss: $file; done 2>/dev/null"


def run(arena: Arena) -> Result:
    """Measure both on the same three hosts."""
    rounds = 2 if arena.quick else min(arena.rounds, ROUNDS)
    library = os.path.abspath(os.path.join(arena.folder, "nvml"))
    head, node, medians, late = [], [], [], []
    with open_hosts(library) as hosts:
        empty_mb = _pss_mb(hosts, 0)
    with open_stoker(library) as hosts:
        for _ in range(rounds):
            time.sleep(_SETTLE_S)
            used = [_pss_mb(hosts, host) - empty_mb for host in range(HOSTS)]
            head.append(used[0])
            node += used[1:]
            delays_ms = _follow(hosts)
            medians.append(statistics.median(delays_ms))
            late.append(statistics.quantiles(delays_ms, n=20)[-1])
    rows = [
        ["idle head: memory, MB", _show(spread(head))],
        ["idle node: memory, MB", _show(spread(node))],
        [
            "line of a job on a node until `stoker log -f` prints it: median, ms",
            _show(spread(medians)),
        ],
        ["the same: 95th percentile, ms", _show(spread(late))],
    ]
    return Result(
        name="cluster_cost",
        what=f"A cluster of {HOSTS} hosts (namespaces of this machine) without jobs: the proportional set"
        f" size of all processes of a host. Then a job on a node writes {LINES} lines, 20 to 200 ms apart,"
        f" which `stoker log -f` on the head prints. {rounds} rounds.",
        details=Table(("of", "median (quartiles)"), rows),
        figures=[
            _figure("memory of an idle head", head, HEAD_MB, "MB"),
            _figure("memory of an idle node", node, NODE_MB, "MB"),
            _figure("log of a job on a node, 95th percentile", late, LATE_MS, "ms"),
        ],
        notes=[
            "The daemon of the head is among its processes, and Ray's shared pages count in part."
        ],
    )


def _figure(name: str, values: list[float], limit: float, unit: str) -> Figure:
    target = Target(Bound.AT_MOST, limit)
    return Figure(name=name, spread=spread(values), target=target, unit=unit, digits=0)


def _show(found: Spread) -> str:
    return f"{found.median:.0f} ({found.q1:.0f} – {found.q3:.0f})"


def _pss_mb(hosts: Hosts, host: int) -> float:
    """Return the proportional set size of all processes of a host."""
    ended = hosts.run(host, ["sh", "-c", _PSS])
    return sum(int(line.split()[1]) for line in ended.stdout.splitlines()) / 1024


def _follow(hosts: Hosts) -> list[float]:
    """Return how late each line of a job on a node is, in milliseconds."""
    words = ["add", "-q", "--node", "h1", "--", sys.executable, "-c", _JOB]
    job = hosts.ok(0, *words).strip()
    try:
        ended = hosts.run(0, [sys.executable, "-c", _FOLLOWER, job], timeout_s=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise BenchError("the log of a job on a node does not end") from None
    delays_ms = [1000 * float(line) for line in ended.stdout.split()]
    if len(delays_ms) != LINES:
        raise BenchError(f"stoker log -f: {len(delays_ms)} lines; {ended.stderr.strip()[-300:]}")
    return delays_ms
