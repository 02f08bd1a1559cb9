"""AMD GPUs in the queue and in `stoker run`, over a tree of files; also beside NVIDIA's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stoker.testing.amd_tree import GIB, AmdTree

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

SHOW = 'echo "rocr=$ROCR_VISIBLE_DEVICES hip=${HIP_VISIBLE_DEVICES-none} cuda=${CUDA_VISIBLE_DEVICES-none}"'
HIP = {"HIP_VISIBLE_DEVICES": "7", "GPU_DEVICE_ORDINAL": "7"}


@pytest.fixture
def tree(idle_queue: Queue, tmp_path: Path) -> AmdTree:
    """Return the files of two AMD GPUs, beside the four of NVIDIA."""
    tree = AmdTree(tmp_path / "amd").create(2, 64 * GIB)
    idle_queue.env.update(tree.env())
    return tree


@pytest.fixture
def amd_queue(idle_queue: Queue, tree: AmdTree) -> Queue:
    """Return a queue on a machine with AMD GPUs alone."""
    os.unlink(Path(idle_queue.stoker.box.folder) / "gpus")
    idle_queue.start(gpus=None)
    return idle_queue


def test_jobs_on_amd_gpus_see_them_by_rocms_variable_alone(amd_queue: Queue, tree: AmdTree) -> None:
    env = {**amd_queue.env, **HIP, "CUDA_VISIBLE_DEVICES": "5"}
    one = amd_queue("add", "-q", SHOW, env=env).out.strip()
    two = amd_queue("add", "-q", "-g", "2", f'{SHOW}; echo "$MASTER_PORT"', env=env).out.strip()
    amd_queue.ok("wait")

    assert amd_queue.ok("log", one) in (
        "rocr=0 hip=none cuda=none\n",
        "rocr=1 hip=none cuda=none\n",
    )
    first, port = amd_queue.ok("log", two).splitlines()
    assert first == "rocr=0,1 hip=none cuda=none"
    assert int(port) > 1024
    leases = os.listdir(amd_queue.env["STOKER_LEASE_DIR"])
    assert any(name.startswith("gpu-AMD-0000%3a03") for name in leases)


def test_stoker_run_uses_amd_gpus_and_names_their_numbers(
    amd_queue: Queue,
) -> None:
    ended = amd_queue.stoker.run("--gpus", "1", "--", SHOW, env=HIP)

    assert (ended.code, ended.out) == (0, "rocr=1 hip=none cuda=none\n")
    refused = amd_queue.stoker.run("--gpus", "2", "--", SHOW)
    assert "GPU 2 does not exist: this machine has 0-1" in refused.err


def test_a_gpu_that_another_process_uses_is_shown_with_its_memory(
    amd_queue: Queue, tree: AmdTree
) -> None:
    tree.use(os.getpid(), 1, 3 * GIB)
    found = json.loads(amd_queue.ok("gpus", "--json"))

    assert [gpu["uuid"] for gpu in found] == [tree.key(0), tree.key(1)]
    assert [gpu["mem_used_bytes"] for gpu in found] == [0, 3 * GIB]
    assert "(3.0 GiB)" in amd_queue.ok("gpus")


def test_a_box_with_cards_of_both_makers_gives_each_job_the_variable_of_its_card(
    idle_queue: Queue, tree: AmdTree
) -> None:
    idle_queue.start(gpus="0,amd1")
    nvidia = idle_queue.add("--on", "stoker fake", SHOW)
    amd = idle_queue.add("--on", "mi250", SHOW)
    idle_queue.ok("wait")

    assert idle_queue.ok("log", str(nvidia)) == "rocr= hip=none cuda=0\n"
    assert idle_queue.ok("log", str(amd)) == "rocr=1 hip=none cuda=none\n"
    shown = idle_queue.ok("gpus")
    assert [line.split()[0] for line in shown.splitlines()[1:7]] == [
        "0",
        "1",
        "2",
        "3",
        "amd0",
        "amd1",
    ]
