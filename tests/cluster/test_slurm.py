"""Real Slurm: batch scripts that are nodes of the cluster, and allocations that the queue asks for."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Iterator

import pytest

from cluster.cluster_fixture import until
from cluster.conftest import require_hosts, require_slurm
from cluster.netns_hosts import Hosts
from cluster.slurm_fixture import Pilot, PilotLab, Slurm, has_cgroups, remove_cgroups
from scale import long_only

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stoker[ray]'",
    ),
    pytest.mark.timeout(300),
]
LEASE_S = 10.0
# A job that leaves its session, with a process that has lost its parent: nothing may escape.
_STUBBORN = (
    "setsid sh -c 'trap \"\" TERM; sleep 1000' & echo gpus $CUDA_VISIBLE_DEVICES; sleep 1000"
)


@pytest.fixture(scope="module", params=["linuxproc", pytest.param("cgroup", marks=long_only)])
def lab(request: pytest.FixtureRequest, nvml_library: str) -> Iterator[PilotLab]:
    """Return a head, and Slurm that follows the processes of its jobs in one way or the other."""
    require_hosts()
    require_slurm()
    if request.param == "cgroup" and not has_cgroups():
        pytest.skip("there are no cgroups of version 1 that this process may change")
    with Hosts(hosts=3, library=nvml_library) as hosts:
        slurm = Slurm(hosts, f"proctrack/{request.param}")
        slurm.start()
        yield PilotLab(slurm, LEASE_S)
    if request.param == "cgroup":
        remove_cgroups()


def run_there(lab: PilotLab, pilot: Pilot) -> int:
    """Start a job on a pilot. Returns its number once it runs."""
    job = lab.add(_STUBBORN, "--node", pilot.node)
    lab.until_state(job, "running", 120.0)
    until(lambda: lab.log(job).read_text().startswith("gpus"), f"job {job} has begun", 60.0)
    return job


def until_nothing_is_left(lab: PilotLab, *pilots: Pilot) -> None:
    for pilot in pilots:
        until(lambda: not lab.left_on(pilot.host), f"nothing is left of {pilot.node}", 60.0)  # noqa: B023


def test_a_pilot_has_the_gpus_of_slurm_and_nothing_outlives_it(lab: PilotLab) -> None:
    where = {"stopped": 1, "guarded": 1, "cancelled": 2}
    submitted = [lab.submit_pilot("--gres=gpu:2", f"--nodelist=h{host}") for host in where.values()]
    pilots = [lab.until_pilot(job) for job in submitted]
    jobs = [run_there(lab, pilot) for pilot in pilots]
    assert sorted(lab.log(job).read_text() for job in jobs) == ["gpus 0\n", "gpus 0\n", "gpus 2\n"]

    stopped, guarded, cancelled = pilots
    lab.hosts.kill(stopped.host, lab.pids_of(stopped)[0], signal.SIGTERM)
    lab.hosts.kill(guarded.host, lab.pids_of(guarded)[0])
    lab.slurm.run(0, "scancel", str(cancelled.job))

    until_nothing_is_left(lab, *pilots)
    homes = [*lab.hosts.folder.glob("h?/stoker-node-*")]
    # Where Slurm kills all processes at once, the next pilot of the machine removes the home.
    assert len(homes) <= (1 if lab.slurm.has_cgroups else 0)
    for job, pilot in zip(jobs, pilots, strict=True):
        lab.until_state(job, "waiting", 60.0)
        assert {row.state for row in lab.of(job)} == {"lost", "waiting"}
        lab.until_told(0, f"{pilot.node} has left the cluster", 60.0)
        lab.ok("kill", str(job))


def test_what_slurm_would_refuse_is_refused_with_its_reason(lab: PilotLab) -> None:
    def refusal(*words: str) -> str:
        ended = lab.hosts.stoker(0, "cluster", "alloc", "add", "slurm", *words)
        assert ended.returncode == 1, ended
        return ended.stderr.removeprefix(
            "stoker: Slurm would not give such an allocation: sbatch: "
        )

    hour = ["--time", "1h"]
    assert refusal(*hour, "--", "-p", "closed").startswith("allocation failure: Invalid account")
    assert refusal(*hour, "--", "-p", "short").startswith(
        "allocation failure: Requested time limit is invalid"
    )
    assert refusal(*hour, "--gpus", "9") == (
        "allocation failure: Requested node configuration is not available\n"
    )
    assert lab.allocations() == []


def test_allocations_come_while_jobs_wait_for_them_and_go_when_idle(lab: PilotLab) -> None:
    rule = ["--time", "1h", "--gpus", "2", "--max", "2", "--idle", "2s", "--may-cut"]
    lab.ok("cluster", "alloc", "add", "slurm", *rule, "--", "-p", "gpu")
    pair = lab.add("echo $CUDA_VISIBLE_DEVICES", "-g", "2")
    singles = [lab.add("sleep 1") for _ in range(4)]
    until(lambda: lab.allocations()[0]["allocations"], "an allocation is asked for", 60.0)
    assert "Slurm has" in lab.ok("why", str(singles[-1]))

    for job in (pair, *singles):
        lab.until_state(job, "done", 120.0)
    assert {row.slots.split("/")[0].partition("-")[0] for row in lab.of(pair) if row.slots} == {
        "slurm"
    }
    until(lambda: not lab.allocations()[0]["allocations"], "all are given back", 120.0)
    assert not lab.slurm.jobs()
    for host in lab.slurm.nodes:
        until(lambda: not lab.left_on(host), f"nothing is left on h{host}", 60.0)  # noqa: B023
    assert lab.allocations()[0]["failure"] is None
    assert [
        node["name"] for node in json.loads(lab.ok("cluster", "status", "--json"))["nodes"]
    ] == ["h0"]

    leaves = lab.hosts.stoker(0, "cluster", "leave")
    assert "stoker cluster alloc rm 1 comes first" in leaves.stderr
    lab.ok("cluster", "alloc", "rm", "1")
    until(lambda: lab.allocations() == [], "the rule is gone", 60.0)
    assert not [*lab.hosts.hosts[0].folder.glob(".local/state/stoker-slurm/*/token-1")]
