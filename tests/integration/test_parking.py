"""Runs of a sweep that are worse than others wait in host RAM, over the fake driver."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.test_suspend import make_queue
from stoker.client.client import Client
from stoker.errors import NotFoundError
from stoker.testing.state import GIB
from stoker.tuning.sweep_queue import SweepQueue
from stoker.wire import NewJob, Submission, to_wire

if TYPE_CHECKING:
    from conftest import FakeMachine
    from integration.daemon_fixture import Queue
    from integration.fork_server import ForkServer

PYTHON = shlex.quote(sys.executable)
# Level 0 is good and ends soon; level 1 goes on for long.
TRAIN = """
import os, sys, stoker
level = int(sys.argv[1])
stoker.report(0, loss=level)
steps = ("--steps", "400", "--seconds", "20") if level else ("--steps", "2", "--seconds", "0.1")
words = [sys.executable, "-m", "stoker.testing.train", "--mem", "5G", *steps]
os.execv(sys.executable, words)
"""


@pytest.fixture
def queue(tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer) -> Iterator[Queue]:
    """Return a queue on one GPU of 8 GiB."""
    with make_queue(tmp_path, fake_gpus(1, 8 * GIB), fork_server) as queue:
        yield queue


def test_a_loser_is_parked_and_goes_on_when_it_is_resumed(queue: Queue) -> None:
    queue.stoker.file("train.py", TRAIN)
    queue.stoker.file(
        "p.yaml",
        f"""
command: {PYTHON} train.py {{level}}
metric: loss
early_terminate: {{type: median, min_runs: 1, park: true}}
parameters: {{level: [0, 1]}}
""",
    )

    queue.ok("sweep", "p.yaml", "--share", "never", "--warm", "never")
    queue.ok("wait", "-P", "p")

    assert queue.states() == {1: "done", 2: "suspended"}
    rows = queue.ok("results", "p", "--columns", "level,state", "--csv").split()
    assert sorted(rows[1:]) == ["0,done", "1,suspended"]
    queue.ok("wait")
    queue.ok("resume", "2")
    queue.until(lambda: queue.show(2)["state"] == "running", "the parked run goes on")
    queue.ok("kill", "2")
    assert queue("wait", "2").code == 1


def test_a_run_that_an_error_kept_from_being_suspended_has_no_mark(
    queue: Queue, tmp_path: Path
) -> None:
    cwd = str(queue.work)
    order = Submission(
        request_id="12345678",
        jobs=[NewJob(command=to_wire(b"true"))],
        cwd=to_wire(cwd.encode()),
        sweep="p",
    )
    with Client(str(queue.home)) as client:
        runs = SweepQueue(client, cwd, order)

        with pytest.raises(NotFoundError, match="99"):
            runs.park(99, str(tmp_path), "worse")

    assert not (tmp_path / ".parked").exists()
