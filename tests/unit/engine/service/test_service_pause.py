from __future__ import annotations

import signal

import pytest

from stoker.core.lifecycle import State
from stoker.errors import ConflictError
from unit.engine.world import FAILED, MakeWorld, World

STOP, CONT, TERM = signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM


class TestJobs:
    def test_a_paused_job_is_stopped_keeps_its_gpu_and_goes_on(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b")
        assert world.pause("1").ids == [1]
        assert world.executor.signals == [("1.1", STOP)]
        assert world.states() == {1: "paused", 2: "waiting"}
        assert world.jobs.tally() == {State.PAUSED: 1, State.WAITING: 1}

        assert world.resume("1").ids == [1]
        assert world.executor.signals == [("1.1", STOP), ("1.1", CONT)]
        assert world.states() == {1: "running", 2: "waiting"}

    def test_its_time_limit_waits_with_it(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", timeout_s=100)
        world.wait(60)
        world.pause("1")
        world.wait(1000)
        assert world.states() == {1: "paused"}
        assert world.engine.patience_s() is None

        world.resume("1")
        assert world.engine.patience_s() == pytest.approx(40)
        world.wait(39)
        assert world.states() == {1: "running"}
        world.wait(1)
        assert world.states() == {1: "killed"}

    def test_the_next_daemon_stops_it_again_and_knows_how_long_it_stood_still(
        self, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_world(gpus=1)
        monkeypatch.setattr("time.time_ns", lambda: round(world.now * 1e9))
        monkeypatch.setattr("time.time", lambda: world.now)
        world.add("a", timeout_s=100)
        world.wait(60)
        world.pause("1")
        world.wait(500)
        world.resume("1")
        world.wait(10)
        world.pause("1")
        world.wait(500)
        world.executor.signals.clear()

        world.restart()
        world.settle()
        assert world.executor.signals == [("1.1", STOP)]
        world.wait(500)
        world.resume("1")

        assert world.engine.patience_s() == pytest.approx(30)

    def test_what_was_resumed_is_told_so_again_by_the_next_daemon(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add("a")
        world.pause("1")
        with world.database.transaction():
            world.jobs.resume(1, 0)  # and die before the signal is sent
        world.restart()
        world.settle()

        assert world.executor.signals == [("1.1", STOP), ("1.1", CONT)]
        assert world.states() == {1: "running"}

    @pytest.mark.parametrize("paused", [True, False])
    def test_a_new_shepherd_is_told_again_too(self, make_world: MakeWorld, paused: bool) -> None:
        world = make_world(gpus=1)
        world.add("a")
        world.pause("1")
        if not paused:
            world.resume("1")
        world.executor.signals.clear()
        world.executor.begin_anew()
        world.settle()

        assert world.executor.signals == [("1.1", STOP if paused else CONT)]

    def test_a_paused_job_hears_that_it_is_to_end(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.pause("1")
        world.kill("1", grace_s=5)

        assert world.executor.signals[1:] == [("1.1", TERM), ("1.1", CONT)]
        world.wait(5)
        assert world.states() == {1: "killed"}

    def test_what_is_being_ended_is_not_stopped(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.kill("1", grace_s=5)

        [refusal] = world.pause("1").refused

        assert refusal.reason == "job 1 is being ended: killed by request"

    def test_what_cannot_be_paused_or_resumed_is_told(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b")
        world.pause("1")

        assert [each.reason for each in world.pause("1-2").refused] == [
            "job 1 is paused already",
            "job 2 is waiting: only what runs can be paused (hold keeps it waiting)",
        ]
        assert [each.reason for each in world.resume("2").refused] == [
            "job 2 is waiting, not paused"
        ]

    def test_one_that_dies_while_it_is_paused_is_over(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b")
        world.pause("1")
        world.end("1.1", 9)

        assert world.states() == {1: "failed", 2: "running"}


class TestQueue:
    def test_nothing_starts_until_it_is_resumed_also_after_a_restart(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add("runs")
        world.pause(queue=True)
        added = world.add("waits")
        assert added.notice is not None
        assert "the queue is paused (paused by hand): stoker resume --queue" in added.notice
        world.end("1.1")
        world.restart()
        world.settle()
        assert world.states() == {1: "done", 2: "waiting"}

        world.resume(queue=True)
        assert world.executor.running == ["2.1"]

    def test_what_was_claimed_in_advance_is_taken_back(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b", "c", "d")
        world.run_short_jobs("1.1")
        assert world.executor.queued
        world.pause(queue=True)

        assert world.executor.queued == []
        assert world.executor.running == ["2.1"]
        world.end("2.1")
        assert world.executor.running == []

    def test_a_projects_part_of_it_alone(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=2)
        world.pause(queue=True, project="p")
        world.add("a", project="p")
        world.add("b")
        assert world.executor.running == ["2.1"]

        world.resume(queue=True, project="p")
        assert sorted(world.executor.running) == ["1.1", "2.1"]

    def test_what_is_not_paused_cannot_be_resumed(self, world: World) -> None:
        with pytest.raises(ConflictError, match="the queue is not paused"):
            world.resume(queue=True)
        with pytest.raises(ConflictError, match="project p is not paused"):
            world.resume(queue=True, project="p")

    def test_retries_and_preempted_jobs_wait_too(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=2)
        world.add("a", retries=1)
        world.add("b")
        world.pause(queue=True)
        world.end("1.1", FAILED)
        world.preempt("2")

        assert world.states() == {1: "waiting", 2: "waiting"}
