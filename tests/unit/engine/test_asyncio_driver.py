"""The engine in an event loop: it turns when there is reason to, and rests otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stoker.engine.engine import Engine
from stoker.service.add import add
from unit.engine.engine_harness import Harness


async def until(fact: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    for _ in range(1000):
        if fact():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to be")


def count_turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each turn from now on."""
    turns: list[int] = []
    turn = Engine.turn

    def count(engine: Engine) -> None:
        turns.append(1)
        turn(engine)

    monkeypatch.setattr(Engine, "turn", count)
    return turns


def test_it_starts_what_is_added_and_hears_of_its_end_with_nobody_else_turning(
    harness: Harness,
) -> None:
    async def story() -> None:
        harness.context.driver.start()
        await add(harness.context, harness.submission("a", "b", "c"))
        await until(lambda: harness.executor.running == ["1.1", "2.1"])
        harness.now += 5
        harness.executor.end("1.1")
        await until(lambda: harness.executor.running == ["3.1", "2.1"])

    harness.run(story())
    assert harness.states() == {1: "done", 2: "running", 3: "starting"} or harness.states() == {
        1: "done",
        2: "running",
        3: "running",
    }
    harness.settle()


def test_pokes_between_two_turns_are_one(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = count_turns(monkeypatch)

    async def story() -> None:
        for _ in range(5):
            harness.context.driver.poke()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    harness.run(story())
    assert len(turns) == 1


def test_it_rests_when_nothing_is_due(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        harness.context.driver.start()
        await add(harness.context, harness.submission("a"))
        await until(lambda: harness.states() == {1: "running"} and not harness.executor.has_reports)
        turns = count_turns(monkeypatch)
        for _ in range(50):
            await asyncio.sleep(0)
        assert turns == []

    harness.run(story())


def test_it_turns_when_a_time_limit_is_due(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[float] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def note(delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
            due.append(delay)
            return loop.call_at(loop.time() + 1e9, call)

        monkeypatch.setattr(loop, "call_later", note)
        harness.context.driver.start()
        await add(harness.context, harness.submission("a", timeout_s=60))
        await until(lambda: harness.states() == {1: "running"})

    harness.run(story())
    monkeypatch.undo()
    assert due
    assert set(due) == {60.0}


def test_a_failure_of_the_engine_is_told_once_and_ends_its_turns(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = []

    def fail(_engine: Engine) -> None:
        turns.append(1)
        raise RuntimeError("broken")

    monkeypatch.setattr(Engine, "turn", fail)

    async def story() -> None:
        harness.context.driver.start()
        harness.context.driver.poke()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="broken"):
            await harness.context.driver.stopped

    harness.run(story())
    assert turns == [1]
    monkeypatch.undo()


def test_a_turn_that_was_asked_for_before_stop_is_not_run(harness: Harness) -> None:
    async def story() -> None:
        harness.context.driver.start()
        await add(harness.context, harness.submission("a"))
        await until(lambda: harness.states() == {1: "running"})
        harness.executor.end("1.1")
        harness.context.driver.poke()
        harness.context.driver.stop()
        for _ in range(20):
            await asyncio.sleep(0)

    harness.run(story())
    assert harness.states() == {1: "running"}
    harness.settle()


def test_after_stop_it_hears_nothing_more(harness: Harness) -> None:
    async def story() -> None:
        harness.context.driver.start()
        await add(harness.context, harness.submission("a"))
        await until(lambda: harness.states() == {1: "running"})
        harness.context.driver.stop()
        harness.executor.end("1.1")
        for _ in range(20):
            await asyncio.sleep(0)

    harness.run(story())
    assert harness.states() == {1: "running"}
    harness.settle()
