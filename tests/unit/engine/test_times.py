"""Jobs that wait for a time: to begin with, and before they are tried again."""

from __future__ import annotations

import pytest

from stoker.errors import UsageError
from unit.engine.world import FAILED, MakeWorld, World


@pytest.fixture
def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world of one GPU in which the time of day is the test's too."""
    world = make_world(gpus=1)
    monkeypatch.setattr("time.time", lambda: world.now)
    monkeypatch.setattr("time.time_ns", lambda: round(world.now * 1e9))
    return world


def test_a_job_begins_when_its_time_has_come_and_not_before(world: World) -> None:
    world.add("later", begin_at=world.now + 100)
    world.add("now")
    assert world.executor.running == ["2.1"]
    world.end("2.1")
    assert world.states()[1] == "delayed"
    assert world.engine.patience_s() == pytest.approx(100)

    world.wait(99)
    assert world.executor.running == []
    world.wait(1)
    assert world.executor.running == ["1.1"]


def test_the_engine_is_roused_for_the_first_of_several(world: World) -> None:
    for after_s in (300, 100, 200):
        world.add("x", begin_at=world.now + after_s, gpus=0)
    assert world.engine.patience_s() == pytest.approx(100)
    world.wait(100)
    assert world.executor.running == ["2.1"]
    assert world.engine.patience_s() == pytest.approx(100)


def test_a_time_survives_a_restart(world: World) -> None:
    world.add("later", begin_at=world.now + 100)
    world.restart()
    world.settle()
    assert world.engine.patience_s() == pytest.approx(100)
    world.wait(100)

    assert world.executor.running == ["1.1"]


def test_a_time_in_the_past_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match="lies in the past"):
        world.add("a", begin_at=world.now - 3600)


def test_a_retry_waits_and_twice_as_long_with_each_try(world: World) -> None:
    world.add("a", retries=3, backoff_s=10)
    for attempt, pause_s in ((1, 10), (2, 20), (3, 40)):
        world.end(f"1.{attempt}", FAILED)
        assert world.states() == {1: "delayed"}
        assert world.engine.patience_s() == pytest.approx(pause_s)
        world.wait(pause_s)
        assert world.executor.running == [f"1.{attempt + 1}"]
    world.end("1.4", FAILED)

    assert world.states() == {1: "failed"}


def test_needs_come_first_then_the_time(world: World) -> None:
    world.add("a")
    world.add("b", after="1", begin_at=world.now + 50)
    assert world.states()[2] == "blocked"
    world.end("1.1")
    assert world.states()[2] == "delayed"
    world.wait(50)

    assert world.executor.running == ["2.1"]
