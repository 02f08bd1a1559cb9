from __future__ import annotations

import signal

from unit.engine.engine_harness import FAILED, Harness, MakeHarness

TERM, KILL = signal.SIGTERM, signal.SIGKILL


class TestByRequest:
    def test_a_job_makes_room_and_waits_again_behind_its_equals(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b", "c")
        assert harness.preempt("1").ids == [1]

        assert harness.attempts(1) == [(1, "preempted", "preempted by request")]
        assert harness.executor.running == ["2.1"]
        for key in ("2.1", "3.1"):
            harness.now += 5
            harness.end(key)
        assert harness.executor.running == ["1.2"]

    def test_an_exit_of_any_kind_after_our_signal_is_no_failure(self, harness: Harness) -> None:
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.preempt("1")
        harness.end("1.1", 0)
        assert harness.executor.running == ["1.2"]

        harness.executor.ignore_signals("1.2")
        harness.preempt("1")
        harness.end("1.2", FAILED)
        assert [outcome for _number, outcome, _reason in harness.attempts(1)] == ["preempted"] * 2
        assert harness.executor.running == ["1.3"]

    def test_its_own_signal_and_grace_count(self, harness: Harness) -> None:
        harness.add("a", stop_signal=int(signal.SIGUSR1), grace_s=30.0)
        harness.executor.ignore_signals("1.1")
        harness.preempt("1")
        assert harness.executor.signals == [("1.1", signal.SIGUSR1)]
        harness.wait(29)
        assert harness.executor.running == ["1.1"]
        harness.wait(1)

        assert harness.executor.signals[-1] == ("1.1", KILL)
        assert harness.executor.running == ["1.2"]

    def test_the_grace_follows_from_how_long_jobs_of_its_kind_took_to_end(
        self, harness: Harness
    ) -> None:
        harness.add("python train.py --lr 1", "python train.py --lr 2")
        for key in ("1.1", "2.1", "1.2"):
            harness.executor.ignore_signals(key)
        harness.preempt("1")
        harness.wait(25)
        harness.end("1.1", FAILED)
        harness.preempt("2")
        assert harness.executor.graces == {"1.1": 60.0, "2.1": 75.0}

        harness.wait(75)
        assert harness.executor.signals[-1] == ("2.1", KILL)
        harness.restart()
        harness.settle()
        harness.preempt("1")
        assert harness.executor.graces["1.2"] == 150.0

    def test_a_kill_has_the_usual_grace_whatever_was_learned(self, harness: Harness) -> None:
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.kill("1")
        assert harness.executor.graces == {"1.1": 10.0}

    def test_it_uses_up_no_retry(self, harness: Harness) -> None:
        harness.add("a", retries=1)
        for _ in range(3):
            harness.preempt("1")
        harness.end("1.4", FAILED)
        assert harness.executor.running == ["1.5"]
        harness.end("1.5", FAILED)

        assert harness.states() == {1: "failed"}

    def test_the_next_daemon_sees_it_through(self, harness: Harness) -> None:
        harness.add("a")
        harness.executor.ignore_signals("1.1")
        harness.preempt("1")
        harness.restart()
        harness.settle()
        harness.end("1.1", FAILED)
        assert harness.attempts(1) == [(1, "preempted", "preempted by request")]
        assert harness.executor.running == ["1.2"]

        harness.restart()
        harness.settle()
        harness.end("1.2")
        assert harness.states() == {1: "done"}

    def test_a_kill_overrules_it_and_it_never_overrules_a_kill(self, harness: Harness) -> None:
        harness.add("a", "b")
        for key in ("1.1", "2.1"):
            harness.executor.ignore_signals(key)
        harness.preempt("1")
        harness.kill("1", grace_s=0)
        harness.settle()
        harness.kill("2", grace_s=60)
        [refusal] = harness.preempt("2").refused
        assert refusal.reason == "job 2 is being ended already: killed by request"
        harness.restart()
        harness.settle()
        harness.end("2.1", FAILED)

        assert harness.states() == {1: "killed", 2: "killed"}

    def test_one_that_was_claimed_in_advance_just_waits_again(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b", "c", "d")
        harness.run_short_jobs("1.1")
        key = harness.executor.queued[0]
        harness.preempt(key.partition(".")[0])

        assert key in harness.executor.revoked
        harness.check()

    def test_what_does_not_run_is_refused(self, harness: Harness) -> None:
        harness.add("a", hold=True)

        [refusal] = harness.preempt("1").refused

        assert refusal.reason == "job 1 is held: only what runs can be preempted"


class TestTimeLimit:
    def test_with_requeue_it_waits_again_behind_its_equals(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b", timeout_s=60, requeue=True)
        harness.wait(60)
        assert harness.attempts(1) == [(1, "preempted", "over the time limit of 1m")]
        assert harness.executor.running == ["2.1"]
        harness.wait(60)

        assert harness.executor.running == ["1.2"]

    def test_a_daemon_that_dies_between_signal_and_end_knows_why_it_ended(
        self, harness: Harness
    ) -> None:
        harness.add("a", timeout_s=60, requeue=True)
        harness.add("b", timeout_s=60)
        harness.add("c", timeout_s=60, retries=1, gpus=0)
        for key in ("1.1", "2.1", "3.1"):
            harness.executor.ignore_signals(key)
        harness.wait(60)
        harness.stop()
        for key in ("1.1", "2.1", "3.1"):
            harness.executor.end(key, TERM)
        harness.executor.lose_client()
        harness.run(harness._begin())
        harness.settle()

        assert harness.states() == {1: "running", 2: "killed", 3: "running"}
        assert harness.attempts(1) == [(1, "preempted", "over the time limit of 1m")]
        assert harness.attempts(2) == [(1, "killed", "over the time limit of 1m")]


class TestPushing:
    def test_a_job_that_may_pushes_out_as_few_as_it_needs(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=3)
        harness.add("old", preemptible=True)
        harness.now += 10
        harness.add("fixed")
        harness.now += 10
        harness.add("young", preemptible=True)
        harness.now += 10
        harness.add("urgent", preempt=True)

        assert sorted(harness.executor.running) == ["1.1", "2.1", "4.1"]
        assert harness.attempts(3) == [(1, "preempted", "preempted by job 4")]
        harness.now += 10
        harness.end("4.1")
        assert sorted(harness.executor.running) == ["1.1", "2.1", "3.2"]

    def test_it_pushes_nobody_out_while_a_gpu_is_free(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2)
        harness.add("a", preemptible=True)
        harness.add("b", preempt=True)

        assert sorted(harness.executor.running) == ["1.1", "2.1"]
        assert harness.executor.signals == []

    def test_it_pushes_nobody_out_where_that_would_not_be_enough(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("fixed")
        harness.add("a", preemptible=True)
        harness.add("big", preempt=True, gpus=2)

        assert sorted(harness.executor.running) == ["1.1", "2.1"]
        assert harness.executor.signals == []

    def test_nobody_of_a_higher_priority_goes(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", preemptible=True, priority=1)
        harness.add("b", preempt=True)

        assert harness.executor.running == ["1.1"]

    def test_it_waits_for_their_grace_without_pushing_out_more(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("a", "b", preemptible=True, grace_s=30.0)
        for key in ("1.1", "2.1"):
            harness.executor.ignore_signals(key)
        harness.add("urgent", preempt=True)
        harness.wait(10)
        harness.add("more", preempt=False)
        assert len(harness.executor.signals) == 1

        harness.wait(20)
        assert "3.1" in harness.executor.running
        assert len(harness.executor.running) == 2

    def test_the_pushed_out_one_comes_before_those_that_are_younger(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", preemptible=True)
        harness.add("urgent", preempt=True)
        harness.add("later")
        assert harness.executor.running == ["2.1"]
        harness.now += 5
        harness.end("2.1")

        assert harness.executor.running == ["1.2"]

    def test_a_light_job_ahead_of_it_is_no_obstacle(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1, cpu_places=1)
        harness.add("a", preemptible=True)
        harness.add("light", "light", gpus=0, priority=9)
        harness.add("urgent", preempt=True)

        assert "4.1" in harness.executor.running
