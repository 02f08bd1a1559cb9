from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError
from stoker.service.wait import begin, progress
from stoker.wire import Progress, Selection, WaitFor
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def test_by_default_all_jobs_are_waited_for(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    harness.now += 5
    harness.end("1.1", FAILED)

    assert progress(harness.context, Selection()) == Progress(
        counts={State.FAILED: 1, State.RUNNING: 1, State.WAITING: 1}, left=2
    )


def test_or_those_that_are_named(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    harness.add("d", project="vision")
    harness.now += 5
    harness.end("1.1")

    assert progress(harness.context, Selection(ids="1")) == Progress(
        counts={State.DONE: 1}, left=0, took_s=5.0
    )
    assert progress(harness.context, Selection(ids="1-2")).left == 1
    assert progress(harness.context, Selection(project="vision")).left == 1
    assert progress(harness.context, Selection(project="nobody")) == Progress(counts={}, left=0)


def test_what_is_over_took_so_long_from_first_start_to_last_end(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", project="vision")
    for key in ("1.1", "2.1"):
        harness.now += 5
        assert progress(harness.context, Selection(project="vision")).took_s is None
        harness.end(key)
    assert progress(harness.context, Selection(project="vision")).took_s == 10.0

    harness.now += 3600  # a pause is not work
    harness.add("c", project="vision", retries=1)
    harness.now += 2
    harness.end("3.1", FAILED)
    harness.now += 3
    harness.end("3.2")
    assert progress(harness.context, Selection(project="vision")).took_s == 5.0
    assert progress(harness.context, Selection(ids="3")).took_s == 5.0
    assert progress(harness.context, Selection(ids="1-3")).took_s == 5.0
    assert progress(harness.context, Selection()).took_s is None  # of weeks, perhaps


def test_what_starts_is_as_good_as_running_to_whoever_waits(harness: Harness) -> None:
    harness.add("a")
    harness.database.write("UPDATE job SET state = 'starting'", ())

    assert progress(harness.context, Selection(ids="1")).counts == {State.RUNNING: 1}
    assert progress(harness.context, Selection()).counts == {State.RUNNING: 1}
    harness.database.write("UPDATE job SET state = 'running'", ())


def test_an_empty_queue_is_done(harness: Harness) -> None:
    assert progress(harness.context, Selection()) == Progress(counts={}, left=0)


def test_what_is_not_there_is_an_error(harness: Harness) -> None:
    with pytest.raises(NotFoundError):
        progress(harness.context, Selection(ids="1"))


def test_what_is_unfinished_is_what_waits_or_runs_at_that_moment(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    harness.add("d", hold=True)
    harness.now += 5
    harness.end("1.1", FAILED)
    harness.now += 1
    wanted = begin(harness.context, WaitFor(unfinished=True), harness.now)
    assert wanted.last == 4

    assert progress(harness.context, wanted).counts == {State.RUNNING: 1, State.WAITING: 1}
    harness.add("e")
    harness.now += 5
    harness.end("2.1", FAILED)
    found = progress(harness.context, wanted)
    assert found.counts == {State.FAILED: 1, State.RUNNING: 1}
    assert (found.left, found.since, found.last) == (1, wanted.since, 4)
    # Another daemon is asked with what the first has told.
    assert begin(harness.context, wanted, harness.now) == wanted
    harness.end("3.1")
    found = progress(harness.context, wanted)
    assert (found.counts, found.left) == ({State.FAILED: 1, State.DONE: 1}, 0)


def test_an_unknown_project_is_refused_and_the_known_ones_are_named(harness: Harness) -> None:
    with pytest.raises(NotFoundError, match="no project 'nope'; no job has a project"):
        begin(harness.context, WaitFor(project="nope"), harness.now)
    harness.add("a", project="vision")
    with pytest.raises(NotFoundError, match="no project 'nope'; projects: vision"):
        begin(harness.context, WaitFor(project="nope"), harness.now)
    known = WaitFor(project="vision")
    assert begin(harness.context, known, harness.now) == known
