"""`usage`: what GPUs and jobs use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker.core.slot import Slot
from stoker.engine.service.show import show
from stoker.engine.service.usage import usage
from stoker.engine.watchman import Watchman
from unit.engine.world import MakeWorld, World
from unit.gpus.driver import GIB, GPU, Driver


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(gpus=(Slot(0, ("0",), ("GPU-0",)),))


@pytest.fixture
def driver(world: World) -> Iterator[Driver]:
    """A GPU on which job 1 holds memory."""
    driver = Driver(GPU)
    driver.held["GPU-0"][os.getpid()] = 2 * GIB
    watchman = Watchman(
        driver,
        world.engine.board,
        world.hub.publisher,
        lambda _pid: "1.1",
        mind_others=False,
    )
    world.engine.follow(watchman)
    yield driver
    watchman.stop()


def test_without_a_driver_there_is_nothing_to_tell(world: World) -> None:
    told = usage(world.hub)
    assert (told.age_s, told.gpus, told.jobs) == (None, [], [])


def test_gpus_and_jobs_are_told_with_their_last_minutes(world: World, driver: Driver) -> None:
    world.add("train")
    watchman = world.engine.watchman
    assert isinstance(watchman, Watchman)
    watchman.look_again()

    told = usage(world.hub)

    assert told.age_s is not None
    assert [(curve.now.label, curve.now.used_bytes) for curve in told.gpus] == [("0", 2 * GIB)]
    assert [(curve.id, curve.past[-1][1]) for curve in told.jobs] == [(1, 2 * GIB)]
    assert len(told.gpus[0].past) >= 2


def test_an_attempt_shows_what_it_has_used_while_it_runs_and_afterwards(
    world: World, driver: Driver
) -> None:
    world.add("train")
    watchman = world.engine.watchman
    assert isinstance(watchman, Watchman)
    watchman.look_again()
    during = show(world.hub, "1").attempts[0].gpu_use
    world.end("1.1")
    after = show(world.hub, "1").attempts[0].gpu_use

    assert during is not None
    assert after is not None
    assert during.mem_peak_bytes == after.mem_peak_bytes == 2 * GIB
