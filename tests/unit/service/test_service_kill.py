from __future__ import annotations

import asyncio
import signal

import pytest

from stoker.core.lifecycle import State
from stoker.engine.engine import Engine
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.service.kill import kill
from stoker.wire import JobEvent, Kill, Refusal
from unit.engine.engine_harness import Harness, MakeHarness


def test_what_runs_and_what_waits_is_ended(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    changed = harness.kill("1-2")

    assert (changed.ids, changed.refused) == ([1, 2], [])
    assert harness.states() == {1: "killed", 2: "killed", 3: "running"}


def test_what_is_over_is_refused_with_how_it_ended(harness: Harness) -> None:
    harness.add("a", "b")
    harness.end("1.1")
    changed = harness.kill("1,2")

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 is done already")]


def test_one_that_is_not_there_is_an_error_and_nothing_is_killed(harness: Harness) -> None:
    harness.add("a")
    with pytest.raises(NotFoundError, match="there is no job 9"):
        harness.kill("1,9")

    assert harness.states() == {1: "running"}


def test_with_no_selection_nothing_is_killed(harness: Harness) -> None:
    harness.add("a")
    with pytest.raises(UsageError, match="no job is named"):
        harness.kill()

    assert harness.states() == {1: "running"}


def test_by_state_by_project_or_all_says_nothing_of_what_is_over(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    harness.add("c", "d", project="vision")
    harness.now += 5
    harness.end("1.1")

    assert harness.kill(project="vision", states=[State.WAITING]).ids == [3, 4]
    changed = harness.kill(all=True)
    assert (changed.ids, changed.refused) == ([2], [])
    assert harness.kill(states=[State.DONE]).ids == []


def test_what_waits_in_great_numbers_is_ended_between_turns_of_the_engine(
    make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 1300)
    turns = []
    turn = Engine.turn

    def look_and_turn(engine: Engine) -> None:
        turns.append(len(engine.queue))
        turn(engine)

    monkeypatch.setattr(Engine, "turn", look_and_turn)
    changed = harness.run(kill(harness.context, Kill(states=[State.WAITING])))

    assert len(changed.ids) == 1299
    assert any(0 < left < 1299 for left in turns)
    assert harness.jobs.tally() == {State.KILLED: 1299, State.RUNNING: 1}


def test_a_job_that_started_while_others_were_being_ended_is_ended_too(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=1)
    harness.add(*["a"] * 600)

    async def both() -> None:
        task = asyncio.ensure_future(kill(harness.context, Kill(ids="1-600")))
        await asyncio.sleep(0)
        await task

    harness.run(both())
    harness.settle()
    assert set(harness.states().values()) == {"killed"}
    assert harness.executor.running == []


def test_listeners_are_told_of_what_is_taken_out_of_the_queue(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b")
    listener = harness.context.events.listen()
    harness.kill("2")
    events = harness.run(listener.__anext__())
    listener.close()

    assert [(e.id, e.state, e.reason) for e in events if isinstance(e, JobEvent)] == [
        (2, State.KILLED, "killed by request")
    ]


def test_with_a_full_disk_it_is_refused_and_what_runs_is_told_to_end_all_the_same(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the very job that has filled the disk."""
    harness.add("a", "b", "c")
    monkeypatch.setattr(
        harness.database, "before_commit", lambda: harness.database.execute("nonsense")
    )
    with pytest.raises(StokerError, match="told to end all the same"):
        harness.run(kill(harness.context, Kill(ids="1,3")))
    monkeypatch.undo()
    harness.settle()

    assert harness.executor.signals == [("1.1", signal.SIGTERM)]
    assert harness.states() == {1: "killed", 2: "running", 3: "running"}
