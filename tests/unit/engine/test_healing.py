"""What becomes of jobs that fail: by the class of their failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unit.engine.world import FAILED, MakeWorld, World

NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error\n"
FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
FULL = "OSError: [Errno 28] No space left on device\n"
MISSING = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'apex'\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


def fail(world: World, key: str, text: str, status: int = FAILED) -> None:
    """Let an attempt end after it has written this to its log."""
    running = world.engine.board.running[key]
    assert running.log is not None
    Path(running.log).write_text(text)
    world.end(key, status)


def failure_of(world: World, job: int) -> str | None:
    found = world.column("failure", job)
    assert found is None or isinstance(found, str)
    return found


def test_every_failed_attempt_has_a_class_and_a_reason(world: World) -> None:
    world.add("train")
    fail(world, "1.1", OOM)

    assert failure_of(world, 1) == "gpu_oom"
    assert world.attempts(1) == [(1, "failed", "exit 1: GPU out of memory: wanted 2.0 GiB more")]


def test_the_text_of_a_success_is_not_read(world: World) -> None:
    world.add("train")
    fail(world, "1.1", OOM, status=0)

    assert world.attempts(1) == [(1, "done", None)]
    assert failure_of(world, 1) is None


def test_what_an_earlier_attempt_wrote_is_not_read_whoever_took_the_job_over(
    world: World, tmp_path: Path
) -> None:
    world.add("train", retries=1, log=str(tmp_path / "its own"))
    fail(world, "1.1", "no luck\n" + OOM)
    world.restart()
    with (tmp_path / "its own").open("a") as log:
        log.write("another failure\n")
    world.end("1.2", FAILED)

    assert failure_of(world, 1) == "error"


def test_gpus_that_lose_touch_are_tried_once_more_without_being_asked(world: World) -> None:
    world.add("train")
    fail(world, "1.1", NCCL)
    assert world.states()[1] == "running"
    fail(world, "1.2", NCCL)
    assert world.states()[1] == "failed"


def test_the_try_on_top_leaves_the_granted_ones(world: World) -> None:
    world.add("train", retries=1)
    fail(world, "1.1", NCCL)
    fail(world, "1.2", NCCL)
    fail(world, "1.3", NCCL)

    assert [outcome for _number, outcome, _reason in world.attempts(1)] == ["failed"] * 3


def test_what_lacks_something_is_not_tried_again_whatever_was_granted(world: World) -> None:
    world.add("train", retries=3)
    fail(world, "1.1", MISSING)

    assert world.states()[1] == "failed"
    assert failure_of(world, 1) == "setup"


def test_another_failure_is_tried_as_often_as_was_granted(world: World) -> None:
    world.add("train", retries=1)
    fail(world, "1.1", "")
    fail(world, "1.2", "")

    assert world.attempts(1) == [(1, "failed", "exit 1"), (2, "failed", "exit 1")]


def test_after_a_fault_of_its_gpu_a_job_goes_to_another_one(world: World) -> None:
    world.add("train")
    fail(world, "1.1", FAULT)

    assert [world.executor.launched[n].slots for n in (0, 1)] == [(0,), (1,)]


def test_with_one_gpu_alone_it_goes_there_again(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("train")
    fail(world, "1.1", FAULT)

    assert world.states()[1] == "running"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Say whether the disk is full."""
    answer = [False]
    for module in ("autopsy", "healing"):
        monkeypatch.setattr(f"stoker.engine.{module}.is_full", lambda _folder: answer[0])

    def be(is_full: bool) -> None:
        answer[0] = is_full

    return be


def test_a_full_disk_pauses_the_queue_and_the_job_waits(
    world: World, full: Callable[[bool], None]
) -> None:
    world.add("train", "train", "train")
    full(True)
    fail(world, "1.1", FULL)

    assert world.states() == {1: "waiting", 2: "running", 3: "waiting"}
    assert "full" in world.why(1)
    assert "the queue is paused, job 1 found the disk of" in world.notices()
    world.resume(queue=True)
    assert world.states()[1] == "running"


def test_a_message_about_space_on_a_disk_that_has_some_is_a_plain_failure(
    world: World, full: Callable[[bool], None]
) -> None:
    world.add("train")
    full(False)
    fail(world, "1.1", FULL)

    assert world.states()[1] == "failed"
    assert failure_of(world, 1) == "disk_full"
    assert world.hub.gate.queue_paused is None


def test_classes_outlive_a_restart(world: World) -> None:
    world.add("train")
    fail(world, "1.1", NCCL)
    world.restart()
    world.settle()
    fail(world, "1.2", NCCL)

    assert world.states()[1] == "failed"


def test_a_foreground_run_waits_for_space_by_itself(
    world: World, full: Callable[[bool], None]
) -> None:
    world.engine.healing.pause = None  # nobody can resume it
    world.add("train", "train", "train")
    full(True)
    fail(world, "1.1", FULL)
    assert world.states() == {1: "waiting", 2: "running", 3: "waiting"}
    assert "starting no more until there is space" in world.notices()

    full(False)
    world.wait(5.0)
    assert world.states()[1] == "running"
    assert "again: going on" in world.notices()


def test_what_the_kernel_killed_for_memory_waits_until_there_is_as_much(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    monkeypatch.setattr("stoker.engine.healing.read_memory", lambda: (8 * 2**30, free[0]))
    world.add("train")
    log = world.engine.board.running["1.1"].log
    assert log is not None
    Path(log).write_text("MemoryError\n")
    world.executor.end("1.1", FAILED, max_rss_kb=2 * 2**20)
    world.settle()

    assert world.states()[1] == "waiting"
    assert "waits for memory: it had" in world.why(1)
    world.add("other")
    assert world.states()[2] == "running"
    free[0] = 8 * 2**30
    world.wait(5.0)
    assert world.states()[1] == "running"
