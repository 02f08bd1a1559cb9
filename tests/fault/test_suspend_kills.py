"""Daemon or helper die in the middle of a suspension: the job runs or is suspended, and is known to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.test_daemon_failpoints import OF_SUSPENSION
from integration.daemon_fixture import Queue
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from conftest import FakeMachine

TRAIN = f"{sys.executable} -m stoker.testing.train --mem 5G --steps 2000 --seconds 60"


@pytest.fixture
def box(fake_gpus: FakeMachine) -> FakeGpus:
    """Return a machine with one GPU of 8 GiB."""
    return fake_gpus(1, 8 * GIB)


@pytest.fixture
def queue(tmp_path: Path, box: FakeGpus) -> Iterator[Queue]:
    """Return a queue whose daemon is not started yet."""
    from conftest import Stoker

    stoker = Stoker(tmp_path, box)
    queue = Queue(stoker)
    yield queue
    queue.close()
    stoker.close()


def last_step(queue: Queue) -> int:
    found = re.findall(r"^step (\d+)/", queue.ok("log", "1"), re.MULTILINE)
    return int(found[-1]) if found else 0


def until_settled(queue: Queue, box: FakeGpus) -> str:
    """Wait until the daemon and the driver say the same of the job; its state."""

    def settled() -> bool:
        state = queue.show(1)["state"]
        held = (box.used_bytes(0), box.suspended_bytes())
        is_locked = any(box.is_locked(process.pid) for process in box.processes(0))
        return (state == "suspended" and held == (0, 5 * GIB)) or (
            state == "running" and held == (5 * GIB, 0) and not is_locked
        )

    queue.until(settled, "daemon and driver agree")
    return str(queue.show(1)["state"])


def test_the_places_are_named() -> None:
    assert len(OF_SUSPENSION) == 9


@pytest.mark.parametrize("place", OF_SUSPENSION)
def test_a_process_killed_at_a_place_leaves_a_job_that_can_be_suspended_and_resumed(
    queue: Queue, box: FakeGpus, tmp_path: Path, place: str
) -> None:
    struck = tmp_path / "struck"
    queue.env["STOKER_FAILPOINT"] = f"{place}:1:{struck}"
    queue.ok("daemon", "start", "--gpus", "0")
    job = str(queue.add(TRAIN))
    queue.until(lambda: last_step(queue) > 2, "it trains")

    queue("suspend", job)  # its daemon may die before it answers
    state = until_settled(queue, box)
    if state == "suspended":
        queue("resume", job)
        queue.until(lambda: queue.show(job)["state"] == "running", "it is resumed")
    queue.until(struck.exists, "a process has died there")
    if until_settled(queue, box) == "suspended":
        queue.ok("resume", job)
        queue.until(lambda: queue.show(job)["state"] == "running", "it is resumed")

    assert until_settled(queue, box) == "running"
    count = last_step(queue)
    queue.until(lambda: last_step(queue) > count, "it trains")
    steps = [int(step) for step in re.findall(r"^step (\d+)/", queue.ok("log", job), re.MULTILINE)]
    assert steps == [*range(1, len(steps) + 1)]
    assert queue.show(job)["attempt"] == 1


def test_the_next_daemon_waits_for_the_helper_of_a_killed_one(queue: Queue, box: FakeGpus) -> None:
    queue.ok("daemon", "start", "--gpus", "0")
    job = str(queue.add(TRAIN))
    queue.until(lambda: last_step(queue) > 2, "it trains")
    pid = box.processes(0)[0].pid
    box.let_calls(Checkpoint="hang")
    asking = queue.stoker.start("suspend", job)
    queue.until(lambda: box.is_locked(pid), "the helper is in the driver")

    queue.kill_daemon()
    assert queue.stoker.end(asking).code == 1
    assert "is being suspended" in queue.ok("why", job)
    box.let_calls()
    queue.until(lambda: queue.show(1)["state"] == "suspended", "it is suspended after all")
    assert until_settled(queue, box) == "suspended"
