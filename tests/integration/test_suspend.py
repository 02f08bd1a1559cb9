"""Suspended jobs over the fake driver: the real program, daemon, helper processes and signals."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue, state_of
from integration.forking import ForkingQueue, ForkingStoker
from stoker.testing.library import build_cuda
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from conftest import FakeMachine
    from integration.fork_server import ForkServer

TRAIN = f"{sys.executable} -m stoker.testing.train --mem 5G --steps {{}} --seconds {{}}"


@pytest.fixture
def box(fake_gpus: FakeMachine) -> FakeGpus:
    """Return a machine with one GPU of 8 GiB."""
    return fake_gpus(1, 8 * GIB)


@pytest.fixture
def queue(tmp_path: Path, box: FakeGpus, fork_server: ForkServer) -> Iterator[Queue]:
    """Return a queue on that GPU."""
    with make_queue(tmp_path, box, fork_server) as queue:
        yield queue


@contextlib.contextmanager
def make_queue(
    tmp_path: Path, box: FakeGpus, server: ForkServer, env: Mapping[str, str] | None = None
) -> Iterator[Queue]:
    """Yield a queue with its own environment, and end it."""
    stoker = ForkingStoker(tmp_path, box, server)
    stoker.env.update(env or {})
    queue = ForkingQueue(stoker)
    queue.start("0")
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


def test_a_killed_suspended_job_frees_its_host_memory_and_keeps_its_figures(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box)
    queue.until(lambda: queue.show(job)["attempts"][-1]["gpu_use"], "its memory is measured")
    queue.ok("suspend", str(job))
    other = queue.add("sleep 1.5")  # the sampler looks meanwhile
    queue.ok("wait", str(other))

    queue.ok("kill", str(job))
    assert queue("wait", str(job)).code == 1
    assert state(queue, job) == "killed"
    assert box.suspended_bytes() == 0
    assert queue.show(job)["attempts"][-1]["gpu_use"]["mem_peak_bytes"] == 5 * GIB


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
    # The daemon lets the processes answer the driver once, and stops them again.
    queue.until(lambda: state_of(pid) == "T", "its processes are stopped")
    queue.ok("resume", str(job))
    queue.until(lambda: state(queue, job) == "running", "it goes on")
    count = len(steps(queue, job))
    queue.until(lambda: len(steps(queue, job)) > count, "it trains")


RESTORE = """
import os, signal, sys
from stoker.gpus.cuda_checkpoint import CheckpointDriver
driver, pid = CheckpointDriver(), int(sys.argv[1])
os.kill(pid, signal.SIGCONT)
driver.restore(pid)
driver.unlock(pid)
"""


def test_the_next_daemon_suspends_a_job_again_that_another_tool_has_restored(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box)
    pid = queue.show(job)["attempts"][-1]["pid"]
    queue.ok("suspend", str(job))
    queue.kill_daemon()
    env = {**os.environ, **queue.stoker.env, **box.env()}
    subprocess.run([sys.executable, "-c", RESTORE, str(pid)], env=env, check=True)
    assert box.used_bytes(0) == 5 * GIB

    assert state(queue, job) == "suspended"
    queue.until(lambda: box.suspended_bytes() == 5 * GIB, "it is suspended again")
    queue.until(lambda: state_of(pid) == "T", "its processes are stopped")
    assert box.used_bytes(0) == 0
    queue.ok("resume", str(job))
    queue.until(lambda: state(queue, job) == "running", "it goes on")


def test_a_preempted_job_can_be_suspended_and_comes_back_by_itself(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box, steps=100, seconds=3)
    urgent = queue.add("until [ -e go ]; do sleep 0.05; done")

    assert queue.ok("preempt", "--suspend", str(job)) == f"making room: job {job}\n"
    queue.until(lambda: state(queue, urgent) == "running", "the urgent job comes first")
    assert state(queue, job) == "suspended"
    queue.stoker.file("go", "")
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


def test_a_job_that_does_not_fit_into_host_ram_runs_on(
    tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer
) -> None:
    box = fake_gpus(1, 1 << 60)
    with make_queue(tmp_path, box, fork_server) as queue:
        job = queue.add(TRAIN.format(400, 20).replace("5G", "500000000G"))
        queue.until(lambda: box.used_bytes(0), "it holds memory")

        ended = queue("suspend", str(job))
        assert ended.code == 1
        assert f"job {job} needs 525000000.0 GiB of host RAM to be suspended, and" in ended.err
        assert f"are available: free some RAM, or use stoker preempt {job}\n" in ended.err
        assert f"; it was not suspended: job {job} needs" in queue.ok("why", str(job))
        assert state(queue, job) == "running"
        assert not box.is_locked(box.processes(0)[0].pid)


def test_an_old_driver_is_told_in_one_line(
    tmp_path: Path, fake_gpus: FakeMachine, nvml_library: str, fork_server: ForkServer
) -> None:
    box = fake_gpus(1, 8 * GIB)
    old = tmp_path / "old"
    build_cuda(old, without=["cuCheckpointProcessLock"])
    env = {"LD_LIBRARY_PATH": f"{old}:{nvml_library}"}
    with make_queue(tmp_path, box, fork_server, env) as queue:
        job = train(queue, box)

        assert queue("suspend", str(job)).err == (
            "stoker: the NVIDIA driver cannot suspend jobs: install version 570 or later\n"
        )
        assert state(queue, job) == "running"


def test_a_driver_that_hangs_is_given_up_and_the_job_runs_on(
    tmp_path: Path, fake_gpus: FakeMachine, fork_server: ForkServer
) -> None:
    box = fake_gpus(1, 8 * GIB)
    with make_queue(tmp_path, box, fork_server, {"STOKER_SUSPEND_TIMEOUT_S": "2"}) as queue:
        job = train(queue, box)
        box.let_calls(Checkpoint="hang")

        ended = queue("suspend", str(job))
        assert ended.err == (
            f"stoker: the NVIDIA driver did not suspend job {job} within 2s; it runs on\n"
        )
        assert "it was not suspended: the NVIDIA driver did not" in queue.ok("why", str(job))
        assert state(queue, job) == "running"
        count = len(steps(queue, job))
        queue.until(lambda: len(steps(queue, job)) > count, "it trains")

        box.let_calls(Checkpoint="hang", Unlock="hang", GetState="hang")
        ended = queue("suspend", str(job))
        assert "the driver does not answer at all: stoker kill" in ended.err
        box.let_calls()


def test_memory_that_another_program_took_keeps_a_job_waiting_and_why_tells_how_much(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box)
    queue.ok("suspend", str(job))
    box.use(1, 0, 4 * GIB, host=True)  # a process outside, which is not ours to end

    queue.ok("resume", str(job))
    queue.until(
        lambda: (
            "GPU 0 has 4.0 GiB free, and it needs 5.0 GiB" in queue.ok("why", str(job))
            or "is used by" in queue.ok("why", str(job))
            or "in use" in queue.ok("why", str(job))
        ),
        "why tells it",
    )
    assert box.suspended_bytes() == 5 * GIB
    box.release(1)
    queue.until(lambda: state(queue, job) == "running", "it goes on")


def test_the_time_limit_does_not_count_while_a_job_is_suspended(
    queue: Queue, box: FakeGpus
) -> None:
    job = train(queue, box, "-t", "4s", steps=2000, seconds=100)
    queue.ok("suspend", str(job))
    other = queue.add("sleep 5")
    queue.ok("wait", str(other))
    assert state(queue, job) == "suspended"

    queue.ok("resume", str(job))
    queue.until(lambda: state(queue, job) == "running", "it goes on")
    count = len(steps(queue, job))
    queue.until(lambda: len(steps(queue, job)) > count, "it trains")
    queue("wait", str(job))
    assert "over the time limit of 4s" in queue.ok("why", str(job))


def test_wait_goes_on_while_a_job_is_suspended(queue: Queue, box: FakeGpus) -> None:
    job = train(queue, box, steps=60, seconds=2)
    queue.ok("suspend", str(job))
    waiting = queue.stoker.start("wait")
    assert waiting.stderr is not None
    assert waiting.stderr.readline().decode() == (
        "stoker: still waiting, but nothing runs; 1 suspended: stoker resume --all\n"
    )

    queue.ok("resume", str(job))
    assert queue.stoker.end(waiting).code == 0
    assert state(queue, job) == "done"


def test_a_job_that_shares_its_gpu_comes_back_to_its_room(queue: Queue, box: FakeGpus) -> None:
    words = ("--share", "auto", "--gpu-mem", "3G")
    command = TRAIN.format(2000, 100).replace("5G", "3G")
    job = queue.add(*words, command)
    queue.until(lambda: box.used_bytes(0) == 3 * GIB, "it holds memory")
    other = queue.add(*words, command)
    queue.until(lambda: box.used_bytes(0) == 6 * GIB, "both share")

    queue.ok("suspend", str(job))
    assert (box.used_bytes(0), box.suspended_bytes()) == (3 * GIB, 3 * GIB)
    third = queue.add(*words, command)
    queue.until(lambda: box.used_bytes(0) == 6 * GIB, "a third one has its room")
    queue.ok("resume", str(job))
    assert "waits for" in queue.ok("why", str(job))
    queue.kill_daemon()
    assert state(queue, job) == "suspended"

    queue.ok("kill", str(third))
    queue.until(lambda: state(queue, job) == "running", "it goes on")
    assert state(queue, other) == "running"
    assert box.used_bytes(0) == 6 * GIB


def test_a_preempting_job_suspends_others_if_the_configuration_says_so(
    queue: Queue, box: FakeGpus
) -> None:
    assert queue("config", "preempt.by", "kill").code == 2
    queue.ok("config", "preempt.by", "suspend")
    job = train(queue, box, "--preemptible", steps=100, seconds=3)
    urgent = queue.add("--preempt", "until [ -e go ]; do sleep 0.05; done")
    queue.until(lambda: state(queue, urgent) == "running", "the urgent job has the GPU")
    assert state(queue, job) == "suspended"
    queue.stoker.file("go", "")
    queue.ok("wait", str(job))

    assert steps(queue, job) == [*range(1, 101)]
    assert queue.show(job)["attempt"] == 1


def test_a_preempting_job_ends_what_the_driver_cannot_suspend(queue: Queue, box: FakeGpus) -> None:
    queue.ok("config", "preempt.by", "suspend")
    job = train(queue, box, "--preemptible")
    box.let_calls(Checkpoint="fail")

    urgent = queue.add("--preempt", "true")
    queue.ok("wait", str(urgent))
    queue.until(lambda: queue.show(job)["attempt"] == 2, "it was preempted, and runs again")
    assert "could not checkpoint process" in queue.ok("status")
