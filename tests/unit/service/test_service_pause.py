from __future__ import annotations

import signal

import pytest

from stoker.core.lifecycle import State
from stoker.errors import ConflictError
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

STOP, CONT, TERM = signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM


class TestJobs:
    def test_a_paused_job_is_stopped_keeps_its_gpu_and_goes_on(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        assert harness.pause("1").ids == [1]
        assert harness.executor.signals == [("1.1", STOP)]
        assert harness.states() == {1: "paused", 2: "waiting"}
        assert harness.jobs.tally() == {State.PAUSED: 1, State.WAITING: 1}

        assert harness.resume("1").ids == [1]
        assert harness.executor.signals == [("1.1", STOP), ("1.1", CONT)]
        assert harness.states() == {1: "running", 2: "waiting"}

    def test_its_time_limit_waits_with_it(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", timeout_s=100)
        harness.wait(60)
        harness.pause("1")
        harness.wait(1000)
        assert harness.states() == {1: "paused"}
        assert harness.engine.patience_s() is None

        harness.resume("1")
        assert harness.engine.patience_s() == pytest.approx(40)
        harness.wait(39)
        assert harness.states() == {1: "running"}
        harness.wait(1)
        assert harness.states() == {1: "killed"}

    def test_the_next_daemon_stops_it_again_and_knows_how_long_it_stood_still(
        self, make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness = make_harness(gpus=1)
        monkeypatch.setattr("time.time_ns", lambda: round(harness.now * 1e9))
        monkeypatch.setattr("time.time", lambda: harness.now)
        harness.add("a", timeout_s=100)
        harness.wait(60)
        harness.pause("1")
        harness.wait(500)
        harness.resume("1")
        harness.wait(10)
        harness.pause("1")
        harness.wait(500)
        harness.executor.signals.clear()

        harness.restart()
        harness.settle()
        assert harness.executor.signals == [("1.1", STOP)]
        harness.wait(500)
        harness.resume("1")

        assert harness.engine.patience_s() == pytest.approx(30)

    def test_what_was_resumed_is_told_so_again_by_the_next_daemon(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a")
        harness.pause("1")
        with harness.database.transaction():
            harness.jobs.resume(1, 0)  # and die before the signal is sent
        harness.restart()
        harness.settle()

        assert harness.executor.signals == [("1.1", STOP), ("1.1", CONT)]
        assert harness.states() == {1: "running"}

    @pytest.mark.parametrize("paused", [True, False])
    def test_a_new_supervisor_is_told_again_too(
        self, make_harness: MakeHarness, paused: bool
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a")
        harness.pause("1")
        if not paused:
            harness.resume("1")
        harness.executor.signals.clear()
        harness.executor.restart()
        harness.settle()

        assert harness.executor.signals == [("1.1", STOP if paused else CONT)]

    def test_a_paused_job_hears_that_it_is_to_end(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.pause("1")
        harness.kill("1", grace_s=5)

        assert harness.executor.signals[1:] == [("1.1", TERM), ("1.1", CONT)]
        harness.wait(5)
        assert harness.states() == {1: "killed"}

    def test_what_is_being_ended_is_not_stopped(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.kill("1", grace_s=5)

        [refusal] = harness.pause("1").refused

        assert refusal.reason == "job 1 is being ended: killed by request"

    def test_what_cannot_be_paused_or_resumed_is_told(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.pause("1")

        assert [each.reason for each in harness.pause("1-2").refused] == [
            "job 1 is paused already",
            "job 2 is waiting: only what runs can be paused (hold keeps it waiting)",
        ]
        assert [each.reason for each in harness.resume("2").refused] == [
            "job 2 is waiting, not paused or suspended"
        ]

    def test_one_that_dies_while_it_is_paused_is_over(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.pause("1")
        harness.end("1.1", 9)

        assert harness.states() == {1: "failed", 2: "running"}


class TestQueue:
    def test_nothing_starts_until_it_is_resumed_also_after_a_restart(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("runs")
        harness.pause(queue=True)
        added = harness.add("waits")
        assert added.notice is not None
        assert "the queue is paused (paused by hand): stoker resume --queue" in added.notice
        harness.end("1.1")
        harness.restart()
        harness.settle()
        assert harness.states() == {1: "done", 2: "waiting"}

        harness.resume(queue=True)
        assert harness.executor.running == ["2.1"]

    def test_what_was_claimed_in_advance_is_taken_back(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b", "c", "d")
        harness.run_short_jobs("1.1")
        assert harness.executor.queued
        harness.pause(queue=True)

        assert harness.executor.queued == []
        assert harness.executor.running == ["2.1"]
        harness.end("2.1")
        assert harness.executor.running == []

    def test_a_projects_part_of_it_alone(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2)
        harness.pause(queue=True, project="p")
        harness.add("a", project="p")
        harness.add("b")
        assert harness.executor.running == ["2.1"]

        harness.resume(queue=True, project="p")
        assert sorted(harness.executor.running) == ["1.1", "2.1"]

    def test_what_is_not_paused_cannot_be_resumed(self, harness: Harness) -> None:
        with pytest.raises(ConflictError, match="the queue is not paused"):
            harness.resume(queue=True)
        with pytest.raises(ConflictError, match="project p is not paused"):
            harness.resume(queue=True, project="p")

    def test_retries_and_preempted_jobs_wait_too(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2)
        harness.add("a", retries=1)
        harness.add("b")
        harness.pause(queue=True)
        harness.end("1.1", FAILED)
        harness.preempt("2")

        assert harness.states() == {1: "waiting", 2: "waiting"}
