"""What becomes of jobs that fail: by the class of their failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unit.engine.engine_harness import FAILED, Harness, MakeHarness

NCCL = "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error\n"
FAULT = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
FULL = "OSError: [Errno 28] No space left on device\n"
MISSING = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'apex'\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def harness(make_harness: MakeHarness) -> Harness:
    return make_harness()


def fail(harness: Harness, key: str, text: str, status: int = FAILED) -> None:
    """Let an attempt end after it has written this to its log."""
    running = harness.engine.slot_table.running[key]
    assert running.log is not None
    Path(running.log).write_text(text)
    harness.end(key, status)


def failure_of(harness: Harness, job: int) -> str | None:
    found = harness.column("failure", job)
    assert found is None or isinstance(found, str)
    return found


def test_every_failed_attempt_has_a_class_and_a_reason(harness: Harness) -> None:
    harness.add("train")
    fail(harness, "1.1", OOM)

    assert failure_of(harness, 1) == "gpu_oom"
    assert harness.attempts(1) == [(1, "failed", "exit 1: GPU out of memory: wanted 2.0 GiB more")]


def test_the_text_of_a_success_is_not_read(harness: Harness) -> None:
    harness.add("train")
    fail(harness, "1.1", OOM, status=0)

    assert harness.attempts(1) == [(1, "done", None)]
    assert failure_of(harness, 1) is None


def test_what_an_earlier_attempt_wrote_is_not_read_whoever_took_the_job_over(
    harness: Harness, tmp_path: Path
) -> None:
    harness.add("train", retries=1, log=str(tmp_path / "its own"))
    fail(harness, "1.1", "no luck\n" + OOM)
    harness.restart()
    with (tmp_path / "its own").open("a") as log:
        log.write("another failure\n")
    harness.end("1.2", FAILED)

    assert failure_of(harness, 1) == "error"


def test_gpus_that_lose_touch_are_tried_once_more_without_being_asked(harness: Harness) -> None:
    harness.add("train")
    fail(harness, "1.1", NCCL)
    assert harness.states()[1] == "running"
    fail(harness, "1.2", NCCL)
    assert harness.states()[1] == "failed"


def test_the_try_on_top_leaves_the_granted_ones(harness: Harness) -> None:
    harness.add("train", retries=1)
    fail(harness, "1.1", NCCL)
    fail(harness, "1.2", NCCL)
    fail(harness, "1.3", NCCL)

    assert [outcome for _number, outcome, _reason in harness.attempts(1)] == ["failed"] * 3


def test_what_lacks_something_is_not_tried_again_whatever_was_granted(harness: Harness) -> None:
    harness.add("train", retries=3)
    fail(harness, "1.1", MISSING)

    assert harness.states()[1] == "failed"
    assert failure_of(harness, 1) == "setup"


def test_another_failure_is_tried_as_often_as_was_granted(harness: Harness) -> None:
    harness.add("train", retries=1)
    fail(harness, "1.1", "")
    fail(harness, "1.2", "")

    assert harness.attempts(1) == [(1, "failed", "exit 1"), (2, "failed", "exit 1")]


def test_after_a_fault_of_its_gpu_a_job_goes_to_another_one(harness: Harness) -> None:
    harness.add("train")
    fail(harness, "1.1", FAULT)

    assert [harness.executor.launched[n].slots for n in (0, 1)] == [(0,), (1,)]


def test_with_one_gpu_alone_it_goes_there_again(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("train")
    fail(harness, "1.1", FAULT)

    assert harness.states()[1] == "running"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Say whether the disk is full."""
    answer = [False]
    for module in ("failure_inspection", "retry_policy"):
        monkeypatch.setattr(f"stoker.engine.{module}.is_full", lambda _folder: answer[0])

    def be(is_full: bool) -> None:
        answer[0] = is_full

    return be


def test_a_full_disk_pauses_the_queue_and_the_job_waits(
    harness: Harness, full: Callable[[bool], None]
) -> None:
    harness.add("train", "train", "train")
    full(True)
    fail(harness, "1.1", FULL)

    assert harness.states() == {1: "waiting", 2: "running", 3: "waiting"}
    assert "full" in harness.why(1)
    assert "the queue is paused, job 1 found the disk of" in harness.notices()
    harness.resume(queue=True)
    assert harness.states()[1] == "running"


def test_a_message_about_space_on_a_disk_that_has_some_is_a_plain_failure(
    harness: Harness, full: Callable[[bool], None]
) -> None:
    harness.add("train")
    full(False)
    fail(harness, "1.1", FULL)

    assert harness.states()[1] == "failed"
    assert failure_of(harness, 1) == "disk_full"
    assert harness.context.admission.queue_paused is None


def test_classes_outlive_a_restart(harness: Harness) -> None:
    harness.add("train")
    fail(harness, "1.1", NCCL)
    harness.restart()
    harness.settle()
    fail(harness, "1.2", NCCL)

    assert harness.states()[1] == "failed"


def test_a_foreground_run_waits_for_space_by_itself(
    harness: Harness, full: Callable[[bool], None]
) -> None:
    harness.engine.retry_policy.pause = None  # nobody can resume it
    harness.add("train", "train", "train")
    full(True)
    fail(harness, "1.1", FULL)
    assert harness.states() == {1: "waiting", 2: "running", 3: "waiting"}
    assert "starting no more until there is space" in harness.notices()

    full(False)
    harness.wait(5.0)
    assert harness.states()[1] == "running"
    assert "again: going on" in harness.notices()


def test_what_the_kernel_killed_for_memory_waits_until_there_is_as_much(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    monkeypatch.setattr("stoker.engine.retry_policy.read_memory", lambda: (8 * 2**30, free[0]))
    harness.add("train")
    log = harness.engine.slot_table.running["1.1"].log
    assert log is not None
    Path(log).write_text("MemoryError\n")
    harness.executor.end("1.1", FAILED, max_rss_kb=2 * 2**20)
    harness.settle()

    assert harness.states()[1] == "waiting"
    assert "waits for memory: it had" in harness.why(1)
    harness.add("other")
    assert harness.states()[2] == "running"
    free[0] = 8 * 2**30
    harness.wait(5.0)
    assert harness.states()[1] == "running"
