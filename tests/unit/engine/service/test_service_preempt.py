from __future__ import annotations

import signal

from unit.engine.world import FAILED, MakeWorld, World

TERM, KILL = signal.SIGTERM, signal.SIGKILL


class TestByRequest:
    def test_a_job_makes_room_and_waits_again_behind_its_equals(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add("a", "b", "c")
        assert world.preempt("1").ids == [1]

        assert world.attempts(1) == [(1, "preempted", "preempted by request")]
        assert world.executor.running == ["2.1"]
        for key in ("2.1", "3.1"):
            world.now += 5
            world.end(key)
        assert world.executor.running == ["1.2"]

    def test_an_exit_of_any_kind_after_our_signal_is_no_failure(self, world: World) -> None:
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.preempt("1")
        world.end("1.1", 0)
        assert world.executor.running == ["1.2"]

        world.executor.ignore_signals("1.2")
        world.preempt("1")
        world.end("1.2", FAILED)
        assert [outcome for _number, outcome, _reason in world.attempts(1)] == ["preempted"] * 2
        assert world.executor.running == ["1.3"]

    def test_its_own_signal_and_grace_count(self, world: World) -> None:
        world.add("a", stop_signal=int(signal.SIGUSR1), grace_s=30.0)
        world.executor.ignore_signals("1.1")
        world.preempt("1")
        assert world.executor.signals == [("1.1", signal.SIGUSR1)]
        world.wait(29)
        assert world.executor.running == ["1.1"]
        world.wait(1)

        assert world.executor.signals[-1] == ("1.1", KILL)
        assert world.executor.running == ["1.2"]

    def test_it_uses_up_no_retry(self, world: World) -> None:
        world.add("a", retries=1)
        for _ in range(3):
            world.preempt("1")
        world.end("1.4", FAILED)
        assert world.executor.running == ["1.5"]
        world.end("1.5", FAILED)

        assert world.states() == {1: "failed"}

    def test_the_next_daemon_sees_it_through(self, world: World) -> None:
        world.add("a")
        world.executor.ignore_signals("1.1")
        world.preempt("1")
        world.restart()
        world.settle()
        world.end("1.1", FAILED)
        assert world.attempts(1) == [(1, "preempted", "preempted by request")]
        assert world.executor.running == ["1.2"]

        world.restart()
        world.settle()
        world.end("1.2")
        assert world.states() == {1: "done"}

    def test_a_kill_overrules_it_and_it_never_overrules_a_kill(self, world: World) -> None:
        world.add("a", "b")
        for key in ("1.1", "2.1"):
            world.executor.ignore_signals(key)
        world.preempt("1")
        world.kill("1", grace_s=0)
        world.settle()
        world.kill("2", grace_s=60)
        [refusal] = world.preempt("2").refused
        assert refusal.reason == "job 2 is being ended already: killed by request"
        world.restart()
        world.settle()
        world.end("2.1", FAILED)

        assert world.states() == {1: "killed", 2: "killed"}

    def test_one_that_was_claimed_in_advance_just_waits_again(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b", "c", "d")
        world.run_short_jobs("1.1")
        key = world.executor.queued[0]
        world.preempt(key.partition(".")[0])

        assert key in world.executor.revoked
        world.check()

    def test_what_does_not_run_is_refused(self, world: World) -> None:
        world.add("a", hold=True)

        [refusal] = world.preempt("1").refused

        assert refusal.reason == "job 1 is held: only what runs can be preempted"


class TestTimeLimit:
    def test_with_requeue_it_waits_again_behind_its_equals(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", "b", timeout_s=60, requeue=True)
        world.wait(60)
        assert world.attempts(1) == [(1, "preempted", "over the time limit of 60 s")]
        assert world.executor.running == ["2.1"]
        world.wait(60)

        assert world.executor.running == ["1.2"]

    def test_a_daemon_that_dies_between_signal_and_end_knows_why_it_ended(
        self, world: World
    ) -> None:
        world.add("a", timeout_s=60, requeue=True)
        world.add("b", timeout_s=60)
        world.add("c", timeout_s=60, retries=1, gpus=0)
        for key in ("1.1", "2.1", "3.1"):
            world.executor.ignore_signals(key)
        world.wait(60)
        world.stop()
        for key in ("1.1", "2.1", "3.1"):
            world.executor.end(key, TERM)
        world.executor.lose_client()
        world.run(world._begin())
        world.settle()

        assert world.states() == {1: "running", 2: "killed", 3: "running"}
        assert world.attempts(1) == [(1, "preempted", "over the time limit of 60 s")]
        assert world.attempts(2) == [(1, "killed", "over the time limit of 60 s")]


class TestPushing:
    def test_a_job_that_may_pushes_out_as_few_as_it_needs(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=3)
        world.add("old", preemptible=True)
        world.now += 10
        world.add("fixed")
        world.now += 10
        world.add("young", preemptible=True)
        world.now += 10
        world.add("urgent", preempt=True)

        assert sorted(world.executor.running) == ["1.1", "2.1", "4.1"]
        assert world.attempts(3) == [(1, "preempted", "preempted by job 4")]
        world.now += 10
        world.end("4.1")
        assert sorted(world.executor.running) == ["1.1", "2.1", "3.2"]

    def test_it_pushes_nobody_out_while_a_gpu_is_free(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=2)
        world.add("a", preemptible=True)
        world.add("b", preempt=True)

        assert sorted(world.executor.running) == ["1.1", "2.1"]
        assert world.executor.signals == []

    def test_it_pushes_nobody_out_where_that_would_not_be_enough(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=2)
        world.add("fixed")
        world.add("a", preemptible=True)
        world.add("big", preempt=True, gpus=2)

        assert sorted(world.executor.running) == ["1.1", "2.1"]
        assert world.executor.signals == []

    def test_nobody_of_a_higher_priority_goes(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        world.add("a", preemptible=True, priority=1)
        world.add("b", preempt=True)

        assert world.executor.running == ["1.1"]

    def test_it_waits_for_their_grace_without_pushing_out_more(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=2)
        world.add("a", "b", preemptible=True, grace_s=30.0)
        for key in ("1.1", "2.1"):
            world.executor.ignore_signals(key)
        world.add("urgent", preempt=True)
        world.wait(10)
        world.add("more", preempt=False)
        assert len(world.executor.signals) == 1

        world.wait(20)
        assert "3.1" in world.executor.running
        assert len(world.executor.running) == 2

    def test_the_pushed_out_one_comes_before_those_that_are_younger(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add("a", preemptible=True)
        world.add("urgent", preempt=True)
        world.add("later")
        assert world.executor.running == ["2.1"]
        world.now += 5
        world.end("2.1")

        assert world.executor.running == ["1.2"]

    def test_a_light_job_ahead_of_it_is_no_obstacle(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1, cpu_places=1)
        world.add("a", preemptible=True)
        world.add("light", "light", gpus=0, priority=9)
        world.add("urgent", preempt=True)

        assert "4.1" in world.executor.running
