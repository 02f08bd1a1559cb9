from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from stoker.testing.amd_tree import AmdTree

if TYPE_CHECKING:
    from pathlib import Path

    from integration.daemon_fixture import Queue

CPUS = "grep -o 'Cpus_allowed_list:.*' /proc/self/status | cut -f 2"

MEET = "touch here.$STOKER_JOB_ID; until [ $(ls here.* | wc -l) = 2 ]; do sleep 0.05; done"


@pytest.fixture
def numa(idle_queue: Queue, tmp_path: Path) -> tuple[str, str]:
    """Put two of four GPUs at each of two NUMA nodes; return the CPUs of these nodes."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        pytest.skip("this process may use only one CPU")
    tree = AmdTree(tmp_path / "machine").create(4)
    tree.divide(str(mine[0]), str(mine[1]))
    os.unlink(os.path.join(idle_queue.stoker.box.folder, "gpus"))
    idle_queue.env.update(tree.env())
    return str(mine[0]), str(mine[1])


def test_jobs_run_on_the_cpus_near_their_gpus_if_that_is_set(
    idle_queue: Queue, numa: tuple[str, str]
) -> None:
    idle_queue.start(gpus="0,3")
    anywhere = idle_queue.add(CPUS)
    idle_queue.ok("wait")
    idle_queue.ok("config", "cpu.bind", "yes")
    idle_queue.ok("daemon", "restart")
    near = [idle_queue.add(f"{MEET}; {CPUS}") for _ in range(2)]
    both = idle_queue.add("-g", "2", CPUS)
    without = idle_queue.add("-g", "0", CPUS)
    idle_queue.ok("wait")

    everything = idle_queue.ok("log", str(anywhere))
    assert {idle_queue.ok("log", str(job)).strip() for job in near} == {*numa}
    assert idle_queue.ok("log", str(both)).strip() in (",".join(numa), "-".join(numa))
    assert idle_queue.ok("log", str(without)) == everything


def test_a_machine_with_one_numa_node_binds_nothing(idle_queue: Queue, tmp_path: Path) -> None:
    tree = AmdTree(tmp_path / "machine").create(1)
    tree.divide("0")
    idle_queue.env.update(tree.env())
    idle_queue.start(gpus="amd0")
    idle_queue.ok("config", "cpu.bind", "yes")
    idle_queue.ok("daemon", "restart")
    job = idle_queue.add("echo ${STOKER_BOUND_CPUS-none}")
    idle_queue.ok("wait")

    assert idle_queue.ok("log", str(job)) == "none\n"
