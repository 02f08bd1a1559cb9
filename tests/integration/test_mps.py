"""MPS with no flag: jobs of a proved kind share a server; the real program over fake GPUs and a fake MPS."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue
from integration.test_suspend import make_queue
from stoker.engine.mps import CONTROL
from stoker.testing.state import GIB

if TYPE_CHECKING:
    from conftest import FakeMachine
    from integration.fork_server import ForkServer

SCRIPT = """
import os
from stoker.testing.train import main
print("pipe", os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), flush=True)
main()
"""


@pytest.fixture
def queue(
    tmp_path_factory: pytest.TempPathFactory, fake_gpus: FakeMachine, fork_server: ForkServer
) -> Iterator[Queue]:
    """Return a queue on a machine with one GPU of 8 GiB and MPS; its home has a short path."""
    folder = tmp_path_factory.mktemp("m")
    tools = folder / "bin"
    tools.mkdir()
    control = tools / CONTROL
    control.write_text(f'#!/bin/sh\nexec {sys.executable} -m stoker.testing.mps "$@"\n')
    control.chmod(0o755)
    Path(folder, "train.py").write_text(SCRIPT)
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    with make_queue(folder, fake_gpus(1, 8 * GIB), fork_server, env) as queue:
        yield queue


def train(queue: Queue, rate: float, *words: str, seconds: float = 1.5) -> int:
    script = os.path.join(os.path.dirname(queue.home), "train.py")
    command = f"{sys.executable} {script} --mem 1G --steps 3 --seconds {seconds} --lr {rate}"
    return queue.add("--share", "auto", *words, command)


def pipe(queue: Queue, job: int) -> str:
    queue("wait", str(job))
    return next(line for line in queue.ok("log", str(job)).splitlines() if line.startswith("pipe"))


def test_a_kind_that_ran_without_a_fault_uses_mps(queue: Queue) -> None:
    assert pipe(queue, train(queue, 0.1)) == "pipe None"
    job = train(queue, 0.2)
    assert pipe(queue, job).startswith(f"pipe {os.path.join(queue.home, 'mps')}/")

    long = train(queue, 0.3, seconds=60)
    queue.until(lambda: "pipe" in queue.ok("log", str(long)), "it runs")
    assert "through MPS" in queue.ok("why", str(long))
    refused = queue("suspend", str(long))
    assert refused.code == 1
    assert "stoker config mps never" in refused.err
    queue.ok("kill", str(long))


@pytest.mark.parametrize("setting", [("mps", "never"), ("preempt.by", "suspend")])
def test_a_setting_keeps_jobs_off_mps(queue: Queue, setting: tuple[str, str]) -> None:
    queue.ok("config", *setting)
    assert pipe(queue, train(queue, 0.1)) == "pipe None"
    assert pipe(queue, train(queue, 0.2)) == "pipe None"


def test_a_job_that_shares_with_nobody_stays_off_mps(queue: Queue) -> None:
    assert pipe(queue, train(queue, 0.1)) == "pipe None"
    assert pipe(queue, train(queue, 0.2, "--share", "never")) == "pipe None"


def test_a_fault_puts_the_kind_on_probation(queue: Queue) -> None:
    assert pipe(queue, train(queue, 0.1)) == "pipe None"
    assert pipe(queue, train(queue, 0.2)) != "pipe None"
    script = os.path.join(os.path.dirname(queue.home), "train.py")
    with open(script, "a", encoding="utf-8") as file:
        file.write(
            "import sys\nif '0.9' in sys.argv:\n    sys.exit('CUDA error: an illegal memory access')\n"
        )
    culprit = train(queue, 0.9)
    assert pipe(queue, culprit) == "pipe None"  # its last attempt, after the fault
    assert queue.show(culprit)["state"] == "failed"
    assert pipe(queue, train(queue, 0.3)) == "pipe None"
