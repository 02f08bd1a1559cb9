from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.engine import eta
from stoker.engine.service.ls import ls
from stoker.engine.service.status import status
from stoker.wire import Selection
from unit.engine.world import FAILED, MakeWorld, World


@pytest.fixture
def world(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world of two GPUs in which the time of day is the test's too."""
    world = make_world(gpus=2)
    monkeypatch.setattr("time.time", lambda: world.now)
    monkeypatch.setattr("time.time_ns", lambda: round(world.now * 1e9))
    monkeypatch.setattr(eta, "_FRESH_S", -1.0)
    monkeypatch.setattr(eta, "_MOST_OF_TIME", float("inf"))
    return world


def live(world: World, job: int, seconds: float, status: int = 0) -> None:
    world.now += seconds
    world.end(f"{job}.1", status)


def left_s(world: World, job: int) -> float | None:
    page = ls(world.hub, Selection(ids=str(job)), text=None, after=None, limit=9)
    ends_at = page.jobs[0].ends_at
    return None if ends_at is None else ends_at - world.now


def test_a_job_is_expected_to_take_as_long_as_others_of_its_kind(world: World) -> None:
    world.add("python a.py --lr 1")
    live(world, 1, 100)
    world.add("python a.py --lr 2")
    live(world, 2, 200)
    world.add("python a.py --lr 3", "python b.py")
    world.now += 50

    assert left_s(world, 3) == pytest.approx(100)
    assert left_s(world, 4) is None
    world.restart()
    world.settle()
    world.now += 500
    assert left_s(world, 3) == 0


def test_nothing_is_learned_from_what_failed_or_was_over_at_once_or_stood_still(
    world: World,
) -> None:
    world.add("a", "b")
    live(world, 1, 0.5)
    live(world, 2, 100, FAILED)
    world.add("c")
    world.now += 10
    world.pause("3")
    world.now += 1000
    world.resume("3")
    live(world, 3, 10)
    rows = world.database.execute("SELECT name, mean_s FROM kind").fetchall()

    assert rows == [("/c", pytest.approx(20))]


def test_the_queue_is_over_when_its_work_is_done_by_all_slots(world: World) -> None:
    assert status(world.hub).eta_s is None
    world.add("a")
    assert status(world.hub).eta_s is None
    live(world, 1, 100)
    world.add(*["a"] * 10)
    world.now += 20

    assert world.jobs.count(State.WAITING) == 8
    # Two run for another 80 s each, eight wait for 100 s each, on two slots.
    assert status(world.hub).eta_s == pytest.approx(480)


def test_a_long_queue_is_taken_to_be_like_its_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eta, "_LOOKED_AT", 10)
    world.add("a")
    live(world, 1, 10)
    world.pause(queue=True)
    world.add(*["a"] * 1000)

    assert status(world.hub).eta_s == pytest.approx(5000)


def test_jobs_without_gpu_and_jobs_on_many_have_their_own_width(world: World) -> None:
    world.add("light", gpus=0)
    world.add("big", gpus=2)
    live(world, 1, 10)
    live(world, 2, 90)
    world.pause(queue=True)
    world.add(*["light"] * 6, gpus=0)
    world.add(*["big"] * 2, gpus=2)

    assert status(world.hub).eta_s == pytest.approx(200)


def test_old_kinds_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eta, "_KINDS", 3)
    for number, name in enumerate("abcde", 1):
        world.add(name)
        live(world, number, 10)
    rows = world.database.execute("SELECT name FROM kind ORDER BY name").fetchall()

    assert rows == [("/c",), ("/d",), ("/e",)]
