"""Jobs on several GPUs: their processes meet at a port of their own."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

# Listens where torchrun would, and waits until another job does as well.
MEET = """
import os, socket, sys, time
from pathlib import Path
listener = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])))
Path(f"met-{os.environ['STOKER_JOB_ID']}").touch()
while len(list(Path().glob("met-*"))) < 2:
    time.sleep(0.01)
print(os.environ["MASTER_PORT"], os.environ.get("RANK"))
"""
# Names its port itself at the first attempt.
FIXED = """
import os, socket, sys
first = os.environ["STOKER_ATTEMPT"] == "1"
socket.create_server(("127.0.0.1", int(sys.argv[1] if first else os.environ["MASTER_PORT"])))
"""


def test_two_jobs_on_several_gpus_at_once_have_ports_of_their_own(idle_queue: Queue) -> None:
    idle_queue.start("0,1,2,3")
    for _ in range(2):
        ended = idle_queue("add", "-g", "2", sys.executable, "-c", MEET, env={"RANK": "1"})
        assert ended.code == 0
    idle_queue.ok("wait")

    first, second = (idle_queue.ok("log", job).split() for job in "12")
    assert first[1] == second[1] == "None"
    assert first[0] != second[0]


def test_a_job_on_two_gpus_gets_a_pair_that_nvlink_joins(idle_queue: Queue) -> None:
    idle_queue.stoker.box.join("pairs")
    idle_queue.start("0,1,2,3")
    first = idle_queue.add("sleep", "600")
    idle_queue.until(lambda: idle_queue.states()[first] == "running", "the first job runs")
    pair = idle_queue.add("-g", "2", "sleep", "600")
    idle_queue.until(lambda: idle_queue.states()[pair] == "running", "the pair runs")
    last = idle_queue.add("sleep", "600")
    idle_queue.until(lambda: idle_queue.states()[last] == "running", "all run")
    slots = {number: job["slots"] for number, job in idle_queue.ls().items()}
    assert (slots[first], slots[pair], slots[last]) == ("0", "2,3", "1")


def test_commands_on_two_gpus_each_get_pairs_that_nvlink_joins(idle_queue: Queue) -> None:
    idle_queue.stoker.box.join("pairs")
    ended = idle_queue(
        "run",
        "-g",
        "2",
        stdin="echo got $CUDA_VISIBLE_DEVICES",
        env={"CUDA_VISIBLE_DEVICES": "0,2,1,3"},
    )
    assert ended.out in ("got 0,1\n", "got 2,3\n")


def test_a_job_whose_port_is_in_use_runs_again_unasked(queue: Queue) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        job = queue.add("-g", "2", sys.executable, "-c", FIXED, str(port))
        queue.ok("wait")

    first, second = queue.show(job)["attempts"]
    assert first["failure"] == "port_taken"
    assert first["reason"].endswith(
        "taken by another process; with -g 2 or more, $MASTER_PORT is free"
    )
    assert second["exit_code"] == 0


def test_slurm_s_variables_are_warned_of_once(queue: Queue) -> None:
    ended = queue("add", "-g", "2", "true", env={"SLURM_NTASKS": "2"})

    assert ended.code == 0
    assert ended.err == (
        "stoker: 1 SLURM_* variables of this shell go along: Lightning takes them for a step of srun and"
        " starts no processes (in bash: unset ${!SLURM_@})\n"
    )
