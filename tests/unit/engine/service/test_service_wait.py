from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.engine.service.wait import begin, progress
from stoker.errors import NotFoundError
from stoker.wire import Progress, Selection, WaitFor
from unit.engine.world import FAILED, MakeWorld, World


def test_by_default_all_jobs_are_waited_for(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    world.now += 5
    world.end("1.1", FAILED)

    assert progress(world.hub, Selection()) == Progress(
        counts={State.FAILED: 1, State.RUNNING: 1, State.WAITING: 1}, left=2
    )


def test_or_those_that_are_named(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    world.add("d", project="vision")
    world.now += 5
    world.end("1.1")

    assert progress(world.hub, Selection(ids="1")) == Progress(
        counts={State.DONE: 1}, left=0, took_s=5.0
    )
    assert progress(world.hub, Selection(ids="1-2")).left == 1
    assert progress(world.hub, Selection(project="vision")).left == 1
    assert progress(world.hub, Selection(project="nobody")) == Progress(counts={}, left=0)


def test_what_is_over_took_so_long_from_first_start_to_last_end(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", project="vision")
    for key in ("1.1", "2.1"):
        world.now += 5
        assert progress(world.hub, Selection(project="vision")).took_s is None
        world.end(key)
    assert progress(world.hub, Selection(project="vision")).took_s == 10.0

    world.now += 3600  # a pause is not work
    world.add("c", project="vision", retries=1)
    world.now += 2
    world.end("3.1", FAILED)
    world.now += 3
    world.end("3.2")
    assert progress(world.hub, Selection(project="vision")).took_s == 5.0
    assert progress(world.hub, Selection(ids="3")).took_s == 5.0
    assert progress(world.hub, Selection(ids="1-3")).took_s == 5.0
    assert progress(world.hub, Selection()).took_s is None  # of weeks, perhaps


def test_what_starts_is_as_good_as_running_to_whoever_waits(world: World) -> None:
    world.add("a")
    world.database.write("UPDATE job SET state = 'starting'", ())

    assert progress(world.hub, Selection(ids="1")).counts == {State.RUNNING: 1}
    assert progress(world.hub, Selection()).counts == {State.RUNNING: 1}
    world.database.write("UPDATE job SET state = 'running'", ())


def test_an_empty_queue_is_done(world: World) -> None:
    assert progress(world.hub, Selection()) == Progress(counts={}, left=0)


def test_what_is_not_there_is_an_error(world: World) -> None:
    with pytest.raises(NotFoundError):
        progress(world.hub, Selection(ids="1"))


def test_what_is_unfinished_is_what_waits_or_runs_at_that_moment(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    world.add("d", hold=True)
    world.now += 5
    world.end("1.1", FAILED)
    world.now += 1
    wanted = begin(world.hub, WaitFor(unfinished=True), world.now)
    assert wanted.last == 4

    assert progress(world.hub, wanted).counts == {State.RUNNING: 1, State.WAITING: 1}
    world.add("e")
    world.now += 5
    world.end("2.1", FAILED)
    found = progress(world.hub, wanted)
    assert found.counts == {State.FAILED: 1, State.RUNNING: 1}
    assert (found.left, found.since, found.last) == (1, wanted.since, 4)
    # Another daemon is asked with what the first has told.
    assert begin(world.hub, wanted, world.now) == wanted
    world.end("3.1")
    found = progress(world.hub, wanted)
    assert (found.counts, found.left) == ({State.FAILED: 1, State.DONE: 1}, 0)


def test_an_unknown_project_is_refused_and_the_known_ones_are_named(world: World) -> None:
    with pytest.raises(NotFoundError, match="no project 'nope'; no job has a project"):
        begin(world.hub, WaitFor(project="nope"), world.now)
    world.add("a", project="vision")
    with pytest.raises(NotFoundError, match="no project 'nope'; projects: vision"):
        begin(world.hub, WaitFor(project="nope"), world.now)
    known = WaitFor(project="vision")
    assert begin(world.hub, known, world.now) == known
