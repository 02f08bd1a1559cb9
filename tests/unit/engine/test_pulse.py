"""The engine in an event loop: it turns when there is reason to, and rests otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stoker.engine.service.add import add
from unit.engine.world import World


async def until(fact: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    for _ in range(1000):
        if fact():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to be")


def test_it_starts_what_is_added_and_hears_of_its_end_with_nobody_else_turning(
    world: World,
) -> None:
    async def story() -> None:
        world.hub.pulse.start()
        await add(world.hub, world.submission("a", "b", "c"))
        await until(lambda: world.executor.running == ["1.1", "2.1"])
        world.now += 5
        world.executor.end("1.1")
        await until(lambda: world.executor.running == ["3.1", "2.1"])

    world.run(story())
    assert world.states() == {1: "done", 2: "running", 3: "starting"} or world.states() == {
        1: "done",
        2: "running",
        3: "running",
    }
    world.settle()


def test_pokes_between_two_turns_are_one(world: World) -> None:
    turns = []
    turn = world.engine.turn

    def count() -> None:
        turns.append(1)
        turn()

    world.engine.turn = count  # type: ignore[method-assign]

    async def story() -> None:
        for _ in range(5):
            world.hub.pulse.poke()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    world.run(story())
    assert len(turns) == 1


def test_it_rests_when_nothing_is_due(world: World) -> None:
    turns = [0]
    turn = world.engine.turn

    def count() -> None:
        turns[0] += 1
        turn()

    async def story() -> None:
        world.hub.pulse.start()
        await add(world.hub, world.submission("a"))
        await until(lambda: world.states() == {1: "running"} and not world.executor.has_news)
        world.engine.turn = count  # type: ignore[method-assign]
        for _ in range(50):
            await asyncio.sleep(0)

    world.run(story())
    assert turns == [0]


def test_it_turns_when_a_time_limit_is_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[float] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def note(delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
            due.append(delay)
            return loop.call_at(loop.time() + 1e9, call)

        monkeypatch.setattr(loop, "call_later", note)
        world.hub.pulse.start()
        await add(world.hub, world.submission("a", timeout_s=60))
        await until(lambda: world.states() == {1: "running"})

    world.run(story())
    monkeypatch.undo()
    assert due
    assert set(due) == {60.0}


def test_a_failure_of_the_engine_is_told_once_and_ends_its_turns(world: World) -> None:
    turns = []

    def fail() -> None:
        turns.append(1)
        raise RuntimeError("broken")

    world.engine.turn = fail  # type: ignore[method-assign]

    async def story() -> None:
        world.hub.pulse.start()
        world.hub.pulse.poke()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="broken"):
            await world.hub.pulse.stopped

    world.run(story())
    assert turns == [1]
    del world.engine.turn


def test_after_stop_it_hears_nothing_more(world: World) -> None:
    async def story() -> None:
        world.hub.pulse.start()
        await add(world.hub, world.submission("a"))
        await until(lambda: world.states() == {1: "running"})
        world.hub.pulse.stop()
        world.executor.end("1.1")
        for _ in range(20):
            await asyncio.sleep(0)

    world.run(story())
    assert world.states() == {1: "running"}
    world.settle()
