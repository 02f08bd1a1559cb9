from __future__ import annotations

from unit.engine.engine_harness import Harness, MakeHarness


def test_a_job_starts_before_all_others_whatever_held_it_back(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("runs")
    harness.add("urgent", priority=100)
    harness.add("held", hold=True, project="p")
    harness.config("limit.p", "1")
    harness.pause(queue=True)
    harness.start("3")
    assert harness.executor.running == ["1.1"]
    assert harness.why(3).endswith("it is the next to start")

    harness.now += 5
    harness.end("1.1")

    assert harness.executor.running == ["3.1"]
    assert harness.states()[2] == "waiting"


def test_needs_and_times_are_forgotten(harness: Harness) -> None:
    harness.add("a")
    harness.add("b", after="1", begin_at=4e9)
    harness.start("2")

    assert sorted(harness.executor.running) == ["1.1", "2.1"]
    assert harness.context.pending.needs_of(2) == []


def test_a_big_one_has_slots_kept_for_it(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("a", "b", "c")
    harness.add("big", gpus=2)
    harness.start("4")
    harness.now += 5
    harness.end("1.1")
    assert harness.executor.running == ["2.1"]
    harness.now += 5
    harness.end("2.1")

    assert harness.executor.running == ["4.1"]


def test_the_wish_survives_a_restart_and_is_forgotten_once_it_has_started(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add("runs", "a", "b")
    harness.start("3")
    harness.restart()
    harness.settle()
    harness.now += 5
    harness.end("1.1")
    assert harness.executor.running == ["3.1"]

    harness.now += 5
    harness.end("3.1", 1 << 8)
    assert harness.executor.running == ["2.1"]
    assert not harness.jobs.has_forced


def test_what_has_begun_is_refused(harness: Harness) -> None:
    harness.add("a")

    [refusal] = harness.start("1").refused

    assert refusal.reason == "job 1 is running: only what has not begun can be started"


def test_of_the_queue_it_changes_nothing_but_looks_at_once(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c", hold=False)
    harness.move("3")
    looks: list[None] = []
    harness.context.driver.poke = lambda: looks.append(None)  # type: ignore[method-assign]

    assert harness.start(queue=True).ids == []
    assert looks
    assert harness.states() == {1: "running", 2: "waiting", 3: "waiting"}
