from __future__ import annotations

from unit.engine.engine_harness import Harness, MakeHarness


def test_a_held_job_is_passed_by_others_and_starts_when_released(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("first", "second", "third")
    assert harness.hold("2").ids == [2]
    assert harness.states()[2] == "held"

    harness.now += 5
    harness.end("1.1")
    assert harness.executor.running == ["3.1"]
    harness.now += 5
    harness.end("3.1")
    assert harness.executor.running == []

    assert harness.release("2").ids == [2]
    assert harness.executor.running == ["2.1"]


def test_a_hold_survives_a_restart(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", hold=True)
    harness.restart()
    harness.settle()

    assert harness.states() == {1: "held"}
    assert harness.column("reason", 1) == "held"
    harness.release("1")
    assert harness.executor.running == ["1.1"]


def test_what_runs_or_is_over_or_held_is_refused_with_a_reason(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("runs", "held", "over")
    harness.hold("2")
    harness.kill("3")

    reasons = {refusal.id: refusal.reason for refusal in harness.hold("1-3").refused}

    assert reasons == {
        1: "job 1 is running: only what has not begun can be held",
        2: "job 2 is held already",
        3: "job 3 is killed: only what has not begun can be held",
    }
    assert [refusal.reason for refusal in harness.release("1").refused] == [
        "job 1 is running, not held"
    ]


def test_by_project_or_state_what_does_not_fit_is_passed_over(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("runs", "waits", project="p")
    harness.add("other")

    changed = harness.hold(project="p")

    assert (changed.ids, changed.refused) == ([2], [])
    assert harness.hold(all=True).ids == [3]
    assert harness.release(all=True).ids == [2, 3]


def test_a_held_job_that_is_killed_and_retried_is_held_no_more(harness: Harness) -> None:
    harness.add("a", hold=True)
    harness.kill("1")
    harness.retry("1")

    assert harness.executor.running == ["1.1"]
