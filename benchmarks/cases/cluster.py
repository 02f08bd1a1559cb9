"""Jobs on a cluster of three hosts, compared with Ray tasks that request a GPU each."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.cases.cluster_cpu import cpu_by_part
from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, Sample, interleave, spread
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Figure, Result, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.arena import Arena
    from cluster.netns_hosts import Hosts

HOSTS, GPUS = 3, 4
JOBS = 1000
TASKS = 60  # what Ray takes the better part of a minute for
MOST_ROUNDS = 3
LINE = "true"
LIMIT_S = 4.0
_PORT = 7866
_PATIENCE_S = 120.0
_TESTS = os.path.join(os.path.dirname(__file__), "..", "..", "tests")
_RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
_RAY_OPTIONS = ["--num-cpus=0", f"--num-gpus={GPUS}", "--object-store-memory=80000000"]
_RAY_OPTIONS += ["--disable-usage-stats"]
# Whether all hosts are there is waited for, and not measured.
_DRIVER = f"""
import subprocess, sys, time
import ray
ray.init(address=sys.argv[1], log_to_driver=False)
deadline = time.monotonic() + {_PATIENCE_S}
while ray.cluster_resources().get("GPU", 0) < {HOSTS * GPUS}:
    assert time.monotonic() < deadline, "the hosts have not found each other"
    time.sleep(0.1)
@ray.remote(num_cpus=0, num_gpus=1)
def task():
    return subprocess.run(["{LINE}"]).returncode
began = time.monotonic()
codes = ray.get([task.remote() for _ in range({TASKS})])
print(time.monotonic() - began)
assert not any(codes)
"""


def run(arena: Arena) -> Result:
    """Race Stoker over its cluster and Ray over one of the same kind, both up before it begins."""
    if importlib.util.find_spec("ray") is None:
        raise BenchError("the cluster benchmark needs Ray: make .venv/.cluster")
    rounds = min(arena.rounds, MOST_ROUNDS)
    lines = arena.lines("cluster", LINE, JOBS)
    library = os.path.abspath(os.path.join(arena.folder, "nvml"))
    with open_stoker(library) as stoker_hosts, open_ray(library) as ray_hosts:
        contestants = [
            Contestant(name=name, argv=[LINE], stdin=lines, jobs=jobs, env=arena.env)
            for name, jobs in (("stoker", JOBS), ("ray tasks", TASKS))
        ]

        used: list[dict[str, float]] = []

        def run_once(contestant: Contestant) -> Sample:
            if contestant.name == "stoker":
                before = cpu_by_part(stoker_hosts)
                wall_s = time_stoker(stoker_hosts, os.path.abspath(lines))
                after = cpu_by_part(stoker_hosts)
                used.append({part: after[part] - before.get(part, 0.0) for part in after})
                cpu_s = sum(used[-1].values())
            else:
                wall_s, cpu_s = time_ray(ray_hosts), 0.0
            return Sample(jobs=contestant.jobs, wall_s=wall_s, cpu_s=cpu_s)

        time_stoker(stoker_hosts, os.path.abspath(lines))
        samples = interleave(contestants, rounds, run_once, arena.progress)
    walls = spread([sample.wall_s for sample in samples["stoker"]])
    return Result(
        name="cluster",
        what=f"{JOBS} crash-safe `{LINE}` from `stoker add --batch` to the end of `stoker wait`, and"
        f" {TASKS} tasks of Ray's with num_gpus=1 that run the same, {rounds} interleaved rounds; each"
        f" on {HOSTS} hosts of their own (namespaces of this machine) with {GPUS} fake GPUs.",
        details=standings(samples, "ray tasks"),
        figures=[
            Figure(
                name=f"{JOBS} jobs over {HOSTS} hosts",
                spread=walls,
                target=Target(Bound.AT_MOST, LIMIT_S),
                unit="s",
            ),
            pace_figure(samples, "stoker", "ray tasks", Target(Bound.AT_LEAST, 10.0)),
        ],
        notes=[
            describe_cpu(used),
            "CPU time of the commands themselves and of Ray's tasks is not taken.",
        ],
    )


def add_tests_to_path() -> None:
    """Let the hosts of the tests be imported."""
    if _TESTS not in sys.path:
        sys.path.append(_TESTS)


def describe_cpu(used: list[dict[str, float]]) -> str:
    """Say which part has used how much CPU time for each job."""
    parts = {
        part: spread([each[part] for each in used]).median * 1e3 / JOBS
        for part in sorted({part for each in used for part in each})
    }
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{part} {ms:.2f}" for part, ms in ordered)
    return f"All hosts share this machine's {os.cpu_count()} CPUs. CPU time for each job, in ms: {shares}."


@contextlib.contextmanager
def open_hosts(library: str) -> Iterator[Hosts]:
    """Lend hosts that can reach each other and nothing else."""
    add_tests_to_path()
    from cluster.netns_hosts import Hosts, why_not

    reason = why_not()
    if reason is not None:
        raise BenchError(reason)
    with Hosts(hosts=HOSTS, gpus=GPUS, library=library) as hosts:
        yield hosts


@contextlib.contextmanager
def open_stoker(library: str) -> Iterator[Hosts]:
    """Lend hosts that are one queue."""
    with open_hosts(library) as hosts:
        said = hosts.ok(0, "cluster", "up")
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+)", said)
        assert found is not None, said
        for host in range(1, HOSTS):
            env = {"STOKER_CLUSTER_TOKEN": found[1]}
            hosts.ok(host, "cluster", "join", hosts.address(0), env=env)
        hosts.ok(0, "daemon", "restart")
        deadline = time.monotonic() + _PATIENCE_S
        while any(f"h{host}/" not in hosts.ok(0, "status") for host in range(HOSTS)):
            if time.monotonic() > deadline:
                raise BenchError("the hosts have not found each other")
            time.sleep(0.1)
        yield hosts


@contextlib.contextmanager
def open_ray(library: str) -> Iterator[Hosts]:
    """Lend hosts that are a cluster of Ray's own."""
    with open_hosts(library) as hosts:
        for host in range(HOSTS):
            here = f"--node-ip-address={hosts.address(host)}"
            place = [f"--address={hosts.address(0)}:{_PORT}"]
            if host == 0:
                place = ["--head", f"--port={_PORT}", "--include-dashboard=false"]
            temp = f"--temp-dir={hosts.hosts[host].folder}/ray"
            words = [*_RAY, *place, here, temp, *_RAY_OPTIONS]
            hosts.spawn(host, ["sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *words])
            if host == 0:
                await_ray(hosts)
        yield hosts


def await_ray(hosts: Hosts) -> None:
    """Wait until the first host answers."""
    probe = f"import socket; socket.create_connection(('{hosts.address(0)}', {_PORT}), 1)"
    deadline = time.monotonic() + _PATIENCE_S
    while hosts.run(0, [sys.executable, "-c", probe]).returncode:
        if time.monotonic() > deadline:
            raise BenchError("Ray has not started")
        time.sleep(0.1)


def time_stoker(hosts: Hosts, lines: str) -> float:
    """From the first word to the last end."""
    stoker = f"{sys.executable} -m stoker"
    words = ["sh", "-c", f"{stoker} add -q --batch {lines} && {stoker} wait"]
    began = time.monotonic()
    ended = hosts.run(0, words)
    wall_s = time.monotonic() - began
    if ended.returncode:
        raise BenchError(f"stoker: {ended.stderr.strip()[-300:]}")
    return wall_s


def time_ray(hosts: Hosts) -> float:
    """From the first task to the last result."""
    words = [sys.executable, "-c", _DRIVER, f"{hosts.address(0)}:{_PORT}"]
    ended = hosts.run(0, words, timeout_s=600.0)
    if ended.returncode:
        raise BenchError(f"ray: {ended.stderr.strip()[-300:]}")
    return float(ended.stdout.split()[-1])
