"""Suspended jobs over the fake driver: the real program, daemon, helper processes and signals."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue, state_of
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from conftest import FakeMachine

TRAIN = f"{sys.executable} -m stoker.testing.train --mem 5G --steps {{}} --seconds {{}}"


@pytest.fixture
def box(fake_gpus: FakeMachine) -> FakeGpus:
    """Return a machine with one GPU of 8 GiB."""
    return fake_gpus(1, 8 * GIB)


@pytest.fixture
def queue(tmp_path: Path, box: FakeGpus) -> Iterator[Queue]:
    """Return a queue on that GPU."""
    from conftest import Stoker

    stoker = Stoker(tmp_path, box)
    queue = Queue(stoker)
    queue.ok("daemon", "start", "--gpus", "0")
    yield queue
    queue.close()
    stoker.close()


def train(queue: Queue, box: FakeGpus, *words: str, steps: int = 400, seconds: float = 20) -> int:
    """Add a training; its id when it has made its first steps."""
    job = queue.add(*words, TRAIN.format(steps, seconds))
    queue.until(lambda: "step 3/" in queue.ok("log", str(job)), "it trains")
    return job


def steps(queue: Queue, job: int) -> list[int]:
    return [
        int(step) for step in re.findall(r"^step (\d+)/", queue.ok("log", str(job)), re.MULTILINE)
    ]


def state(queue: Queue, job: int) -> str:
    return str(queue.show(job)["state"])


def test_a_suspended_job_frees_its_gpu_and_goes_on_from_the_same_step(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box, steps=40, seconds=2)
    pid = queue.show(job)["attempts"][-1]["pid"]

    ended = queue("suspend", str(job))
    assert (ended.code, ended.out) == (0, f"suspended job {job}\n"), ended
    assert "their GPUs are free" in ended.err
    assert (box.used_bytes(0), box.suspended_bytes()) == (0, 5 * GIB)
    queue.until(lambda: state_of(pid) == "T", "its processes are stopped")
    before = steps(queue, job)
    assert state(queue, job) == "suspended"
    assert "is suspended from GPU 0, with 5.0 GiB in host RAM: stoker resume" in queue.ok(
        "why", "@"
    )
    assert "1 suspended" in queue.ok("status")

    other = queue.add(TRAIN.format(2, 0.1))
    queue.ok("wait", str(other))
    assert steps(queue, other) == [1, 2]
    assert steps(queue, job) == before

    assert queue.ok("resume", str(job)) == f"resumed job {job}\n"
    queue.ok("wait", str(job))
    assert steps(queue, job) == [*range(1, 41)]
    undisturbed = queue.add(TRAIN.format(40, 0.2))
    queue.ok("wait", str(undisturbed))
    assert queue.ok("log", str(job)) == queue.ok("log", str(undisturbed))


def test_a_suspended_job_waits_for_its_gpu_and_why_names_the_job_there(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box)
    queue.ok("suspend", str(job))
    other = queue.add(TRAIN.format(400, 20))
    queue.until(lambda: len(steps(queue, other)) > 1, "the other trains")

    queue.ok("resume", str(job))
    why = queue.ok("why", str(job))
    assert "it waits for 1 GPU" in why
    assert f"job {other}" in why
    assert "is being resumed already" in queue("resume", str(job)).err

    queue.ok("kill", str(other))
    queue.until(lambda: state(queue, job) == "running", "it goes on")
    count = len(steps(queue, job))
    queue.until(lambda: len(steps(queue, job)) > count, "it trains")


def test_all_processes_of_a_job_are_suspended_and_resumed(queue: Queue, box: FakeGpus) -> None:
    half = TRAIN.format(400, 20).replace("5G", "2G")
    job = queue.add(f"{half} >one & {half} >two & wait")
    queue.until(lambda: len(box.processes(0)) == 2, "both hold memory")

    queue.ok("suspend", str(job))
    assert (box.used_bytes(0), box.suspended_bytes()) == (0, 4 * GIB)
    queue.ok("resume", str(job))
    queue.until(lambda: box.used_bytes(0) == 4 * GIB, "both are back")
    lines = [len(queue.stoker.read(name)) for name in ("one", "two")]
    queue.until(
        lambda: all(
            len(queue.stoker.read(name)) > count
            for name, count in zip(("one", "two"), lines, strict=True)
        ),
        "both train",
    )


def test_a_killed_suspended_job_frees_its_host_memory(queue: Queue, box: FakeGpus) -> None:
    job = train(queue, box)
    queue.ok("suspend", str(job))

    queue.ok("kill", str(job))
    assert queue("wait", str(job)).code == 1
    assert state(queue, job) == "killed"
    assert box.suspended_bytes() == 0


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
@pytest.mark.parametrize("mode", ["fail", "refuse"])
def test_a_job_runs_on_if_the_driver_cannot_suspend_it(
    queue: Queue, box: FakeGpus, call: str, mode: str
) -> None:
    job = train(queue, box)
    box.let_calls(**{call: mode})

    ended = queue("suspend", str(job))
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert f"job {job} runs on" in ended.err
    assert ("MPS" in ended.err) == (mode == "refuse")
    assert state(queue, job) == "running"
    count = len(steps(queue, job))
    queue.until(lambda: len(steps(queue, job)) > count, "it trains")
    assert box.used_bytes(0) == 5 * GIB


def test_a_suspended_job_stays_so_when_the_daemon_is_killed(queue: Queue, box: FakeGpus) -> None:
    job = train(queue, box)
    pid = queue.show(job)["attempts"][-1]["pid"]
    queue.ok("suspend", str(job))
    queue.kill_daemon()

    assert state(queue, job) == "suspended"
    other = queue.add(TRAIN.format(2, 0.1))
    queue.ok("wait", str(other))
    assert state_of(pid) == "T"
    queue.ok("resume", str(job))
    queue.until(lambda: state(queue, job) == "running", "it goes on")
    count = len(steps(queue, job))
    queue.until(lambda: len(steps(queue, job)) > count, "it trains")


def test_a_preempted_job_can_be_suspended_and_comes_back_by_itself(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box, steps=100, seconds=3)
    urgent = queue.add(TRAIN.format(3, 0.3))

    assert queue.ok("preempt", "--suspend", str(job)) == f"making room: job {job}\n"
    queue.ok("wait", str(urgent))
    queue.ok("wait", str(job))
    assert steps(queue, job) == [*range(1, 101)]
    assert queue.show(job)["attempt"] == 1


def test_what_cannot_be_suspended_is_told_in_one_line(queue: Queue, box: FakeGpus) -> None:
    job = queue.add("-g", "0", "sleep 60")
    queue.until_running(job)
    assert queue("suspend", str(job)).err == (
        f"stoker: job {job} uses no GPU: stoker pause {job} stops it\n"
    )
    idle = queue.add("sleep 60")
    queue.until_running(idle)
    assert f"job {idle} uses no GPU yet that could be suspended" in queue("suspend", "@").err
    waiting = queue.add("true")
    assert queue("suspend", str(waiting)).err == (
        f"stoker: job {waiting} is waiting: only what runs can be suspended\n"
    )
    assert state(queue, idle) == "running"
