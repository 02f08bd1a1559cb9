from __future__ import annotations

import time

import pytest

from stoker.engine.slot_state import ClosedBy
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


@pytest.fixture
def still(make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a harness of two GPUs in which the time of day is the test's too."""
    harness = make_harness(gpus=2)
    monkeypatch.setattr("time.time", lambda: harness.now)
    monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
    return harness


def test_every_slot_is_accounted_for(still: Harness) -> None:
    still.add("a", name="train", timeout_s=7200)
    still.now += 4200
    still.add("b")
    still.now += 30
    still.add("big", gpus=2)
    still.add("small")

    assert still.why(3) == (
        "job 3 waits for 2 GPUs: GPU 0 held by job 1 (train, 1h 10m, time limit in 49m 30s),"
        " GPU 1 held by job 2 (30s)"
    )
    assert still.why(4).endswith("; 1 job ahead of it")
    still.pause("2")
    still.gpus("drain", "0")
    assert "GPU 0 drained, GPU 1 held by job 2 (30s, paused)" in still.why(3)
    still.engine.slot_table.states[1].close(ClosedBy.GPU, "in use by ann (pid 7, 14.2 GiB)")
    assert "GPU 1 in use by ann (pid 7, 14.2 GiB)" in still.why(3)


def test_a_slot_that_is_kept_for_another_is_told(still: Harness) -> None:
    still.add("a")
    still.add("big", gpus=2)
    still.add("small")

    assert still.why(3) == (
        "job 3 waits for 1 GPU: GPU 0 held by job 1 (0.0s),"
        " GPU 1 kept for job 2, which needs 2 GPUs and is ahead; 1 job ahead of it"
    )


def test_a_gpu_of_somebody_elses_stoker_is_told(still: Harness) -> None:
    still.executor.foreign.update(("GPU-0", "GPU-1"))
    still.add("a")

    assert still.why(1) == "job 1 waits for 1 GPU: GPU 0 held by another, GPU 1 held by another"


def test_pauses_and_limits_are_told_with_the_way_out(still: Harness) -> None:
    still.config("limit.p", "1")
    still.add("a", "b", project="p")
    assert still.why(2) == ("job 2 waits: project p runs 1 job, its limit (stoker config limit.p)")
    still.pause(queue=True)
    assert still.why(2).startswith(
        "job 2 waits: the queue is paused (paused by hand): stoker resume --queue; project p runs"
    )
    still.pause(queue=True, project="p")
    assert "project p is paused (paused by hand): stoker resume --queue -P p" in still.why(2)


def test_a_gpu_that_is_not_for_its_project_is_told(still: Harness) -> None:
    still.config("gpus.p", "1")
    still.add("a", "b", project="p")

    assert still.why(2) == (
        "job 2 waits for 1 GPU: GPU 0 is not for its project, GPU 1 held by job 1 (0.0s)"
    )


def test_more_gpus_than_there_are_is_told(still: Harness) -> None:
    still.add("a", gpus=2, hold=True)
    still.gpus("remove", "1")
    still.release("1")

    assert still.why(1) == "job 1 waits for 2 GPUs, and this queue has 1: stoker set 1 gpus=1"


def test_a_job_without_gpu_waits_for_a_place(still: Harness) -> None:
    still.add("a", "b", "c", gpus=0)

    assert still.why(3) == "job 3 waits for a place without GPU: 2 of 2 are taken"


def test_what_has_not_come_to_the_queue_yet(still: Harness) -> None:
    still.add("a", name="a", hold=True)
    still.add("b", after="a")
    still.add("c", begin_at=still.now + 600)
    still.add("d", after_any="1")

    assert still.why(1) == "job 1 is held: stoker release 1 lets it go on"
    assert still.why(2) == "job 2 waits for the success of job 1 (a, held)"
    assert still.why(4) == "job 4 waits for the end of job 1 (a, held)"
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(still.now + 600))
    assert still.why(3) == f"job 3 is delayed until {until}, in 10m 00s"


def test_what_runs_and_what_is_paused(still: Harness) -> None:
    still.add("a", timeout_s=100)
    still.add("b", gpus=0)
    still.now += 10
    assert still.why(1) == "job 1 is running on GPU 0 (10s), time limit in 1m 30s"
    assert still.why(2) == "job 2 is running without GPU (10s)"
    still.pause("1")
    assert still.why(1) == (
        "job 1 is paused on GPU 0 (10s), and keeps its GPU memory: stoker resume 1 lets it go on"
    )
    still.executor.ignore_signals("2.1")
    still.kill("2")
    assert still.why(2).endswith("and is being ended: killed by request")


def test_what_is_over(still: Harness) -> None:
    still.add("a", retries=1)
    still.add("b", after="1")
    still.add("c")
    still.end("3.1")
    still.end("1.1", FAILED)
    still.end("1.2", 9)

    assert still.why(1) == "job 1 is failed: killed by SIGKILL, after 2 attempts"
    assert still.why(2) == (
        "job 2 was skipped: it needs what did not succeed: job 1 is failed;"
        " stoker retry of what did not succeed revives it"
    )
    assert still.why(3) == "job 3 is done: it ended with exit 0"


def test_what_became_of_the_attempt_before_is_told(still: Harness) -> None:
    still.add("a", retries=1)
    still.end("1.1", FAILED)
    before = "; attempt 1 failed: exit 1"
    assert still.why(1) == f"job 1 is running on GPU 0 (0.0s){before}"
    still.end("1.2")
    assert still.why(1) == f"job 1 is done: it ended with exit 0{before}"


def test_a_preempted_job_is_told_of_while_it_waits(still: Harness) -> None:
    still.add("a", gpus=2)
    still.add("b", gpus=2)
    still.preempt("1")
    assert still.why(1).endswith("; attempt 1 was preempted: preempted by request")


def test_a_job_that_was_claimed_in_advance_is_the_next_to_start(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c", "d")
    harness.run_short_jobs("1.1")

    assert harness.why(3) == "job 3 is being started on the first GPU that becomes free"
