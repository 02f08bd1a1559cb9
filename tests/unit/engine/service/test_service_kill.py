from __future__ import annotations

import asyncio
import signal

import pytest

from stoker.core.lifecycle import State
from stoker.engine.service.kill import kill
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.wire import JobEvent, Kill, Refusal
from unit.engine.world import MakeWorld, World


def test_what_runs_and_what_waits_is_ended(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    changed = world.kill("1-2")

    assert (changed.ids, changed.refused) == ([1, 2], [])
    assert world.states() == {1: "killed", 2: "killed", 3: "running"}


def test_what_is_over_is_refused_with_how_it_ended(world: World) -> None:
    world.add("a", "b")
    world.end("1.1")
    changed = world.kill("1,2")

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 is done already")]


def test_one_that_is_not_there_is_an_error_and_nothing_is_killed(world: World) -> None:
    world.add("a")
    with pytest.raises(NotFoundError, match="there is no job 9"):
        world.kill("1,9")

    assert world.states() == {1: "running"}


def test_with_no_selection_nothing_is_killed(world: World) -> None:
    world.add("a")
    with pytest.raises(UsageError, match="no job is named"):
        world.kill()

    assert world.states() == {1: "running"}


def test_by_state_by_project_or_all_says_nothing_of_what_is_over(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    world.add("c", "d", project="vision")
    world.now += 5
    world.end("1.1")

    assert world.kill(project="vision", states=[State.WAITING]).ids == [3, 4]
    changed = world.kill(all=True)
    assert (changed.ids, changed.refused) == ([2], [])
    assert world.kill(states=[State.DONE]).ids == []


def test_what_waits_in_great_numbers_is_ended_between_turns_of_the_engine(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 1300)
    turns = []
    turn = world.engine.turn

    def look_and_turn() -> None:
        turns.append(len(world.engine.queue))
        turn()

    world.engine.turn = look_and_turn  # type: ignore[method-assign]
    changed = world.run(kill(world.hub, Kill(states=[State.WAITING])))

    assert len(changed.ids) == 1299
    assert any(0 < left < 1299 for left in turns)
    assert world.jobs.tally() == {State.KILLED: 1299, State.RUNNING: 1}


def test_a_job_that_started_while_others_were_being_ended_is_ended_too(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 600)

    async def both() -> None:
        task = asyncio.ensure_future(kill(world.hub, Kill(ids="1-600")))
        await asyncio.sleep(0)
        await task

    world.run(both())
    world.settle()
    assert set(world.states().values()) == {"killed"}
    assert world.executor.running == []


def test_listeners_are_told_of_what_is_taken_out_of_the_queue(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    listener = world.hub.events.listen()
    world.kill("2")
    events = world.run(listener.__anext__())
    listener.close()

    assert [(e.id, e.state, e.reason) for e in events if isinstance(e, JobEvent)] == [
        (2, State.KILLED, "killed by request")
    ]


def test_with_a_full_disk_it_is_refused_and_what_runs_is_told_to_end_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the very job that has filled the disk."""
    world.add("a", "b", "c")
    monkeypatch.setattr(world.database, "before_commit", lambda: world.database.execute("nonsense"))
    with pytest.raises(StokerError, match="told to end all the same"):
        world.run(kill(world.hub, Kill(ids="1,3")))
    monkeypatch.undo()
    world.settle()

    assert world.executor.signals == [("1.1", signal.SIGTERM)]
    assert world.states() == {1: "killed", 2: "running", 3: "running"}
