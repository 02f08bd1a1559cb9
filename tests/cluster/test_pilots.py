"""Pilots in real Slurm: batch scripts that are nodes of the cluster, whatever ends them."""

from __future__ import annotations

import importlib.util
import signal

import pytest

from cluster.cluster_fixture import until
from cluster.slurm_fixture import Pilot, PilotLab, Slurm

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


@pytest.fixture(scope="module")
def lab(slurm: Slurm) -> PilotLab:
    return PilotLab(slurm, LEASE_S)


def run_there(lab: PilotLab, pilot: Pilot) -> int:
    """Start a job on a pilot. Returns its number once it runs."""
    job = lab.add(_STUBBORN, "--node", pilot.node)
    lab.until_state(job, "running", 60.0)
    until(lambda: lab.log(job).read_text().startswith("gpus"), f"job {job} has begun", 60.0)
    return job


def until_nothing_is_left(lab: PilotLab, *pilots: Pilot) -> None:
    for pilot in pilots:
        until(lambda: not lab.left_on(pilot.host), f"nothing is left of {pilot.node}", 60.0)  # noqa: B023
        assert not [*lab.hosts.hosts[pilot.host].folder.glob("stoker-node-*")]


def test_a_pilot_has_the_gpus_that_slurm_gave_it_and_hands_its_jobs_back(lab: PilotLab) -> None:
    first = lab.submit_pilot("--gres=gpu:2", "--nodelist=h1")
    pilot = lab.until_pilot(lab.submit_pilot("--gres=gpu:1", "--nodelist=h1"))
    job = run_there(lab, pilot)
    assert lab.log(job).read_text() == "gpus 2\n"
    lab.until_pilot(first)

    guard, _member = lab.pids_of(pilot)
    lab.hosts.kill(pilot.host, guard, signal.SIGTERM)

    lab.until_told(0, f"{pilot.node} has left the cluster", 60.0)
    lab.until_state(job, "waiting", 60.0)
    assert lab.of(job)[0].state == "lost"
    assert lab.ok("log", str(job)) == "gpus 2\n"
    lab.ok("kill", str(job))
    lab.slurm.run(0, "scancel", str(first))
    until_nothing_is_left(lab, pilot)


def test_whatever_ends_a_pilot_leaves_no_process_and_fails_no_job(lab: PilotLab) -> None:
    submitted = [lab.submit_pilot("--gres=gpu:2", f"--nodelist=h{host}") for host in (1, 2, 2)]
    guarded, membered, cancelled = [lab.until_pilot(job) for job in submitted]
    jobs = [run_there(lab, pilot) for pilot in (guarded, membered, cancelled)]

    lab.hosts.kill(guarded.host, lab.pids_of(guarded)[0])
    lab.hosts.kill(membered.host, lab.pids_of(membered)[1])
    lab.slurm.run(0, "scancel", str(cancelled.job))

    until_nothing_is_left(lab, guarded, membered, cancelled)
    for job, pilot in zip(jobs, (guarded, membered, cancelled), strict=True):
        lab.until_state(job, "waiting", 60.0)
        assert {row.state for row in lab.of(job)} == {"lost", "waiting"}
        lab.until_told(0, f"{pilot.node} has left the cluster", 60.0)
        lab.ok("kill", str(job))
