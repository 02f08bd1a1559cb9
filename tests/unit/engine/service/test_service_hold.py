from __future__ import annotations

from unit.engine.world import MakeWorld, World


def test_a_held_job_is_passed_by_others_and_starts_when_released(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("first", "second", "third")
    assert world.hold("2").ids == [2]
    assert world.states()[2] == "held"

    world.now += 5
    world.end("1.1")
    assert world.executor.running == ["3.1"]
    world.now += 5
    world.end("3.1")
    assert world.executor.running == []

    assert world.release("2").ids == [2]
    assert world.executor.running == ["2.1"]


def test_a_hold_survives_a_restart(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", hold=True)
    world.restart()
    world.settle()

    assert world.states() == {1: "held"}
    assert world.column("reason", 1) == "held"
    world.release("1")
    assert world.executor.running == ["1.1"]


def test_what_runs_or_is_over_or_held_is_refused_with_a_reason(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("runs", "held", "over")
    world.hold("2")
    world.kill("3")

    reasons = {refusal.id: refusal.reason for refusal in world.hold("1-3").refused}

    assert reasons == {
        1: "job 1 is running: only what has not begun can be held",
        2: "job 2 is held already",
        3: "job 3 is killed: only what has not begun can be held",
    }
    assert [refusal.reason for refusal in world.release("1").refused] == [
        "job 1 is running, not held"
    ]


def test_by_project_or_state_what_does_not_fit_is_passed_over(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("runs", "waits", project="p")
    world.add("other")

    changed = world.hold(project="p")

    assert (changed.ids, changed.refused) == ([2], [])
    assert world.hold(all=True).ids == [3]
    assert world.release(all=True).ids == [2, 3]


def test_a_held_job_that_is_killed_and_retried_is_held_no_more(world: World) -> None:
    world.add("a", hold=True)
    world.kill("1")
    world.retry("1")

    assert world.executor.running == ["1.1"]
