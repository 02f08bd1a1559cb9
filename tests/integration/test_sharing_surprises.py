"""Runs whose memory is not what their kind has shown: it grows late, or processes that they fork hold it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue
from integration.test_suspend import make_queue
from stoker.testing.state import GIB

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeMachine
    from integration.fork_server import ForkServer

# Holds 2 GiB; if a file says so, it holds 4 more later, or forks two processes that hold 3 each.
SCRIPT = """
import os, sys, time
from pathlib import Path
from stoker.testing.state import from_env
from stoker.testing.train import Device

run, box = sys.argv[1], from_env()
devices = [Device(box, 0, 10)]
devices[0].allocate(2 << 30)
grow, fork = Path(f"grow-{run}"), Path(f"fork-{run}")
while not Path("end").exists():
    time.sleep(0.02)
    if grow.exists():
        grow.unlink()
        devices[0].allocate(4 << 30)
    if fork.exists():
        fork.unlink()
        if os.fork() == 0 or os.fork() == 0:
            devices = [Device(box, 0, 10)]
            devices[0].allocate(3 << 30)
devices[0].release()
"""


@pytest.fixture
def queue(tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer) -> Iterator[Queue]:
    """Return a queue on a GPU of 24 GiB that has learned that runs of `surprise.py` hold 2 GiB."""
    # A torch that keeps to no cap, whichever is installed beside the tests.
    (tmp_path / "lib" / "torch").mkdir(parents=True)
    (tmp_path / "lib" / "torch" / "version.py").write_text("__version__ = '2.9.0'\n")
    with make_queue(tmp_path, fake_gpus(1, 24 * GIB), fork_server) as queue:
        queue.stoker.env["PYTHONPATH"] = str(tmp_path / "lib")
        (queue.work / "surprise.py").write_text(SCRIPT)
        sweep(queue, "0.1")
        end(queue, 1, "2.0 GiB in use")
        yield queue


def sweep(queue: Queue, runs: str) -> None:
    queue.ok(
        "sweep", f"{shlex.quote(sys.executable)} surprise.py {{x}}", f"x={runs}", "--rerun", "all"
    )


def until_told(queue: Queue, job: int, says: str) -> None:
    queue.until(lambda: says in queue.ok("why", str(job)), says)


def end(queue: Queue, job: int, says: str) -> None:
    """Let the runs end once `why` says something of one of them."""
    until_told(queue, job, says)
    (queue.work / "end").touch()
    queue.ok("wait")
    (queue.work / "end").unlink()


def test_memory_that_grows_late_is_set_aside_and_why_tells_it(queue: Queue) -> None:
    sweep(queue, "0.2,0.3")
    learned = "best effort: learned from 1 run with up to 2.0 GiB"
    until_told(queue, 2, f"with 2.7 GiB set aside ({learned}) and 2.0 GiB in use")
    until_told(queue, 3, f"with 2.7 GiB set aside ({learned}) and 2.0 GiB in use")

    (queue.work / "grow-0.2").touch()
    outgrown = "best effort: it used more than was reserved"
    until_told(queue, 2, f"with 6.6 GiB set aside ({outgrown}) and 6.0 GiB in use")
    sweep(queue, "0.4")
    end(queue, 4, "a job there uses more than was reserved: no job joins")
    assert [queue.show(job)["attempt"] for job in (2, 3, 4)] == [1, 1, 1]


def test_memory_of_forked_processes_counts_and_is_learned(queue: Queue) -> None:
    sweep(queue, "0.2")
    until_told(queue, 2, "2.0 GiB in use")
    (queue.work / "fork-0.2").touch()
    end(queue, 2, "8.0 GiB in use")

    sweep(queue, "0.3")
    end(queue, 3, "with 10.8 GiB set aside")
