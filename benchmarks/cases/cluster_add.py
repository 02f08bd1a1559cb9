"""Time until a machine with Python alone is a node of a cluster: `stoker cluster add` over a real sshd."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.arena import say
from benchmarks.cases.cluster import add_tests_to_path
from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from cluster.netns_hosts import Hosts

MOST_ROUNDS = 5
LIMIT_S = 30.0
_PATIENCE_S = 300.0


def run(arena: Arena) -> Result:
    """Add a machine, which includes the copy of Stoker and Ray, and remove it again."""
    if importlib.util.find_spec("ray") is None:
        raise BenchError("the cluster_add benchmark needs Ray: make .venv/.cluster")
    add_tests_to_path()
    from cluster.netns_hosts import Hosts, why_not
    from cluster.ssh_hosts import SshHosts, why_no_sshd

    reason = why_not() or why_no_sshd()
    if reason is not None:
        raise BenchError(reason)
    rounds = min(arena.rounds, MOST_ROUNDS)
    library = os.path.abspath(os.path.join(arena.folder, "nvml"))
    times_s = []
    with Hosts(hosts=2, gpus=4, library=library) as hosts:
        SshHosts(hosts)
        hosts.ok(0, "cluster", "up")
        for number in range(rounds):
            began = time.monotonic()
            said = _stoker(hosts, "add", "root@h1")
            times_s.append(time.monotonic() - began)
            say(f"  round {number + 1}: {said.splitlines()[-1]}")
            _stoker(hosts, "remove", "h1")
    return Result(
        name="cluster_add",
        what="`stoker cluster add` from its start to a node that can run jobs, on a host (namespaces of this"
        f" machine) with Python, sshd and nothing of Stoker's; {rounds} rounds. Both ends share the"
        " processors.",
        details=Table(
            ["round", "s"],
            [[str(number), f"{each:.1f}"] for number, each in enumerate(times_s, 1)],
        ),
        figures=[
            Figure(
                name="a bare machine is a node",
                spread=spread(times_s),
                target=Target(Bound.AT_MOST, LIMIT_S),
                unit="s",
            )
        ],
    )


def _stoker(hosts: Hosts, *words: str) -> str:
    command = [sys.executable, "-m", "stoker", "cluster", *words]
    ended = hosts.run(0, command, timeout_s=_PATIENCE_S)
    if ended.returncode:
        raise BenchError(f"stoker cluster {' '.join(words)}: {ended.stderr.strip()[-300:]}")
    return ended.stdout
