from __future__ import annotations

from unit.engine.world import MakeWorld, World


def test_a_job_starts_before_all_others_whatever_held_it_back(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("runs")
    world.add("urgent", priority=100)
    world.add("held", hold=True, project="p")
    world.config("limit.p", "1")
    world.pause(queue=True)
    world.start("3")
    assert world.executor.running == ["1.1"]
    assert world.why(3).endswith("it is the next to start")

    world.now += 5
    world.end("1.1")

    assert world.executor.running == ["3.1"]
    assert world.states()[2] == "waiting"


def test_needs_and_times_are_forgotten(world: World) -> None:
    world.add("a")
    world.add("b", after="1", begin_at=4e9)
    world.start("2")

    assert sorted(world.executor.running) == ["1.1", "2.1"]
    assert world.hub.shelf.needs_of(2) == []


def test_a_big_one_has_slots_kept_for_it(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.add("a", "b", "c")
    world.add("big", gpus=2)
    world.start("4")
    world.now += 5
    world.end("1.1")
    assert world.executor.running == ["2.1"]
    world.now += 5
    world.end("2.1")

    assert world.executor.running == ["4.1"]


def test_the_wish_survives_a_restart_and_is_forgotten_once_it_has_started(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add("runs", "a", "b")
    world.start("3")
    world.restart()
    world.settle()
    world.now += 5
    world.end("1.1")
    assert world.executor.running == ["3.1"]

    world.now += 5
    world.end("3.1", 1 << 8)
    assert world.executor.running == ["2.1"]
    assert not world.jobs.has_forced


def test_what_has_begun_is_refused(world: World) -> None:
    world.add("a")

    [refusal] = world.start("1").refused

    assert refusal.reason == "job 1 is running: only what has not begun can be started"


def test_of_the_queue_it_changes_nothing_but_looks_at_once(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c", hold=False)
    world.move("3")
    looks: list[None] = []
    world.hub.pulse.poke = lambda: looks.append(None)  # type: ignore[method-assign]

    assert world.start(queue=True).ids == []
    assert looks
    assert world.states() == {1: "running", 2: "waiting", 3: "waiting"}
