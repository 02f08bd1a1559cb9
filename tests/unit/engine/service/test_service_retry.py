from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.wire import JobEvent, Refusal
from unit.engine.world import FAILED, MakeWorld, World


def test_what_failed_runs_once_more_under_a_new_number(world: World) -> None:
    world.add("a")
    world.end("1.1", FAILED)
    assert world.retry("1").ids == [1]

    assert world.executor.running == ["1.2"]
    world.end("1.2")
    assert [attempt[:2] for attempt in world.attempts(1)] == [(1, "failed"), (2, "done")]


@pytest.mark.parametrize("how", ["done", "killed", "lost", "cancelled"])
def test_everything_that_is_over_can_be_retried_by_id(make_world: MakeWorld, how: str) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    match how:
        case "done":
            world.end("1.1")
        case "killed":
            world.kill("1")
        case "lost":
            world.executor.lose("1.1")
            world.settle()
        case "cancelled":
            world.kill("2")
    job = "2" if how == "cancelled" else "1"
    assert world.retry(job).ids == [int(job)]
    world.now += 5
    while world.executor.running:
        world.end(world.executor.running[0])
        world.now += 5

    assert set(world.states().values()) == {"done"}


def test_it_waits_at_its_old_place(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    world.now += 5
    world.end("1.1", FAILED)
    world.retry("1")
    world.now += 5
    world.end("2.1")

    assert world.executor.running == ["1.2"]


def test_what_is_not_over_is_refused_with_its_state(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    changed = world.retry("1-2")

    assert changed.ids == []
    assert changed.refused == [
        Refusal(1, "job 1 is running: only what is over can be retried"),
        Refusal(2, "job 2 is waiting: only what is over can be retried"),
    ]


def test_without_ids_only_what_did_not_succeed_is_meant(world: World) -> None:
    world.add("a", "b", "c", "d")
    world.now += 5
    world.end("1.1")
    world.end("2.1", FAILED)
    changed = world.retry(all=True)
    assert (changed.ids, changed.refused) == ([2], [])

    assert world.retry(states=[State.DONE]).ids == [1]


def test_one_that_has_become_too_large_for_the_queue_is_refused_and_the_others_run(
    make_world: MakeWorld,
) -> None:
    world = make_world(gpus=2)
    world.add("a", gpus=2)
    world.end("1.1", FAILED)
    world.add("b")
    world.end("2.1", FAILED)
    world.restart(gpus=1)
    changed = world.retry(all=True)

    assert changed.ids == [2]
    assert changed.refused == [Refusal(1, "job 1 asks for more GPUs than the 1 of this queue")]
    assert world.executor.running == ["2.2"]


def test_fresh_runs_in_the_folder_itself_and_from_then_on(world: World) -> None:
    world.add("a", snapshot="0123")
    assert world.executor.contexts[1].cwd == str(world.home / "snapshots" / "0123")
    world.end("1.1", FAILED)
    world.retry("1")
    assert world.executor.launched[-1].context == 1
    world.end("1.2", FAILED)
    world.retry("1", fresh=True)
    assert world.executor.contexts[2].cwd == str(world.home)
    world.end("1.3", FAILED)
    world.retry("1")

    assert [launch.context for launch in world.executor.launched] == [1, 1, 2, 2]


def test_fresh_is_refused_for_what_was_shipped(world: World) -> None:
    world.add("a", snapshot="0123", sync=True)
    world.end("1.1", FAILED)

    (refused,) = world.retry("1", fresh=True).refused

    assert "added with --sync" in refused.reason
    assert world.retry("1").ids == [1]


def test_listeners_are_told_that_it_waits(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b")
    world.kill("2")
    listener = world.hub.events.listen()
    world.retry("2")
    events = world.run(listener.__anext__())
    listener.close()

    assert [(e.id, e.state) for e in events if isinstance(e, JobEvent)] == [(2, State.WAITING)]


def test_what_is_not_there_is_an_error(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.retry("1")
    with pytest.raises(UsageError):
        world.retry()


def test_many_go_in_slices(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add(*["a"] * 1100)
    world.kill(states=[State.WAITING])

    assert len(world.retry(states=[State.KILLED]).ids) == 1099
    assert world.jobs.tally() == {State.WAITING: 1099, State.RUNNING: 1}


def test_a_reason_chooses_among_what_did_not_succeed(make_world: MakeWorld) -> None:
    world = make_world(gpus=4)
    world.add("a", "b", "c", "d")
    world.end("1.1", FAILED)
    world.end("2.1", 127 << 8)
    world.end("3.1", 0)
    world.end("4.1", 9)

    assert world.retry(all=True, reason="Not Found").ids == [2]
    assert world.retry(all=True, reason="sigkill").ids == [4]
    assert world.retry(all=True, reason="no such reason").ids == []
    assert world.retry(all=True).ids == [1]
