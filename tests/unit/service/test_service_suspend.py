from __future__ import annotations

import signal
from pathlib import Path

import pytest

from stoker.core.lifecycle import State
from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.suspend_helper import HelperAnswer
from unit.engine.engine_harness import Harness, MakeHarness

STOP, CONT, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
HELD = {"GPU-0": 5 << 30}


def suspended(make_harness: MakeHarness, **job: object) -> Harness:
    """A queue on one GPU whose job 1 is suspended."""
    harness = make_harness(gpus=1)
    harness.add("a", **job)
    harness.helper.answer = HelperAnswer(held_bytes=HELD)
    assert harness.suspend("1").ids == [1]
    return harness


def refusals(harness: Harness, ids: str) -> list[str]:
    return [each.reason for each in harness.suspend(ids).refused]


class TestSuspend:
    def test_a_suspended_job_is_stopped_and_its_gpu_goes_to_the_next(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.suspend("1")

        assert harness.states() == {1: "suspended", 2: "running"}
        assert harness.executor.signals == [("1.1", STOP)]
        assert harness.executor.moves == [("1.1", None)]
        assert harness.jobs.tally() == {State.SUSPENDED: 1, State.RUNNING: 1}
        (order,) = [order for _verb, order in harness.helper.orders]
        assert (order.job, order.root_pid) == (1, harness.column("pid", 1))

    def test_a_refusal_leaves_it_running_on_its_gpu(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.helper.answer = HelperAnswer(refusal="no RAM")

        assert refusals(harness, "1") == ["no RAM"]
        assert harness.states() == {1: "running", 2: "waiting"}
        assert harness.executor.signals == []
        harness.restart()
        assert len(harness.helper.orders) == 1  # the next daemon finds nothing to finish

    def test_what_cannot_be_suspended_is_told(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2)
        harness.add("a", gpus=0)
        harness.add("a", "b")
        harness.add("waits")
        harness.suspend("2")

        assert refusals(harness, "1") == ["job 1 uses no GPU: stoker pause 1 stops it"]
        assert refusals(harness, "2") == ["job 2 is suspended already"]
        harness.pause("3")
        assert refusals(harness, "3") == ["job 3 is paused: only what runs can be suspended"]

    def test_a_job_of_another_node_is_refused(self, make_harness: MakeHarness) -> None:
        nodes = (NodeFacts(name="here"), NodeFacts(name="there"))
        far = (Slot(0, ("0",), ("GPU-0",), "there"),)
        harness = make_harness(gpus=far, nodes=nodes)
        harness.add("a")

        (told,) = refusals(harness, "1")
        assert told.startswith(
            "job 1 runs on node there: only jobs on this machine can be suspended"
        )
        assert harness.helper.orders == []

    def test_a_job_with_mps_is_refused(self, make_harness: MakeHarness, tmp_path: Path) -> None:
        harness = make_harness(gpus=1, mps_folder=str(tmp_path / "mps"))
        harness.add("a", mps=True)
        assert harness.engine.gpus.mps is not None
        harness.engine.gpus.mps.join(harness.engine.slot_table.running["1.1"])

        (told,) = refusals(harness, "1")
        assert told.startswith("job 1 runs with MPS, which the driver cannot suspend")
        assert harness.helper.orders == []

    def test_a_kill_ends_it_at_once(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness)
        harness.kill("1")

        assert harness.executor.signals[-1] == ("1.1", KILL)
        assert harness.states() == {1: "killed"}
        assert harness.engine.suspensions is not None
        assert harness.engine.suspensions.recorded() == {}


class TestResume:
    def test_it_waits_for_its_own_gpu_although_another_is_free(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=2)
        harness.add("a")
        harness.suspend("1")
        harness.add("b")
        harness.resume("1")

        assert harness.states() == {1: "suspended", 2: "running"}
        assert "it waits for 1 GPU: GPU 0 held by job 2" in harness.why(1)
        harness.end("2.1")
        harness.let_helpers_answer()
        assert harness.states() == {1: "running", 2: "done"}
        assert harness.executor.moves[-1] == ("1.1", (0,))
        assert harness.executor.signals == [("1.1", STOP), ("1.1", CONT)]
        assert harness.started() == ["1.1", "2.1"]

    @pytest.mark.parametrize(("priority", "first"), [(1, 3), (0, 1), (-1, 1)])
    def test_it_has_its_place_in_the_order_of_the_queue(
        self, make_harness: MakeHarness, priority: int, first: int
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.suspend("1")
        harness.add("c", priority=priority)
        harness.resume("1")
        harness.end("2.1")
        harness.let_helpers_answer()

        assert [job for job, state in harness.states().items() if state == "running"] == [first]

    def test_a_preempted_one_comes_behind_its_equals_and_by_itself(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("a", "b")
        harness.preempt("1", suspend=True)
        assert harness.states() == {1: "suspended", 2: "running"}
        harness.end("2.1")
        harness.let_helpers_answer()

        assert harness.states() == {1: "running", 2: "done"}
        assert harness.started() == ["1.1", "2.1"]

    def test_without_room_it_gives_its_slot_back_and_tries_again(
        self, make_harness: MakeHarness
    ) -> None:
        harness = suspended(make_harness)
        harness.helper.answer = HelperAnswer(refusal="GPU 0 has 1 GiB free", try_again=True)
        harness.resume("1")
        harness.let_helpers_answer()
        assert harness.states() == {1: "suspended"}
        assert harness.why(1).endswith("it waits to go on: GPU 0 has 1 GiB free")
        assert harness.executor.moves[-1] == ("1.1", None)

        harness.helper.answer = HelperAnswer()
        harness.wait(2)
        harness.let_helpers_answer()
        assert harness.states() == {1: "running"}
        assert harness.helper.orders[-1][1].held_bytes == HELD

    def test_one_that_the_driver_lost_waits_for_its_user(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness)
        harness.helper.answer = HelperAnswer(refusal="the driver lost it")
        harness.resume("1")
        harness.let_helpers_answer()
        harness.wait(100)

        assert harness.states() == {1: "suspended"}
        assert "it was not resumed: the driver lost it" in harness.why(1)
        assert "job 1 was not resumed: the driver lost it" in harness.notices()
        assert [verb for verb, _order in harness.helper.orders] == ["suspend", "resume"]

    def test_its_time_limit_waits_with_it(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness, timeout_s=100)
        harness.wait(1000)
        assert harness.states() == {1: "suspended"}
        harness.resume("1")
        harness.let_helpers_answer()

        assert harness.engine.patience_s() == pytest.approx(100)


class TestTheNextDaemon:
    def test_asks_the_driver_for_a_suspended_job_and_stops_it_again(
        self, make_harness: MakeHarness
    ) -> None:
        harness = suspended(make_harness)
        harness.executor.signals.clear()
        harness.restart()
        harness.settle()
        harness.let_helpers_answer()

        assert harness.states() == {1: "suspended"}
        assert [verb for verb, _order in harness.helper.orders] == ["suspend", "check"]
        assert harness.executor.signals == [("1.1", STOP)]
        assert "with 5.0 GiB in host RAM" in harness.why(1)
        harness.add("b")
        assert harness.states() == {1: "suspended", 2: "running"}

    def test_tells_what_the_driver_says_otherwise(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness)
        harness.helper.answer = HelperAnswer(refusal="the driver lost it")
        harness.restart()
        harness.settle()
        harness.let_helpers_answer()

        assert harness.states() == {1: "suspended"}
        assert harness.why(1).endswith("lets it go on; the driver lost it")
        assert "job 1 is not suspended as it was: the driver lost it" in harness.notices()

    def test_resumes_a_job_only_after_the_driver_was_asked(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness)
        harness.add("b")
        harness.resume("1")
        harness.restart()
        harness.end("2.1")
        assert harness.states() == {1: "suspended", 2: "done"}
        harness.let_helpers_answer()
        harness.let_helpers_answer()

        assert harness.states() == {1: "running", 2: "done"}
        assert [verb for verb, _order in harness.helper.orders] == ["suspend", "check", "resume"]
        assert [signal for _key, signal in harness.executor.signals] == [STOP, STOP, CONT]

    def test_begins_nothing_with_a_job_that_has_ended(self, make_harness: MakeHarness) -> None:
        harness = suspended(make_harness)
        harness.stop()
        harness.executor.end("1.1")
        harness.executor.lose_client()
        harness.begin()
        harness.settle()
        harness.let_helpers_answer()

        assert harness.states() == {1: "done"}
        assert [verb for verb, _order in harness.helper.orders] == ["suspend"]
