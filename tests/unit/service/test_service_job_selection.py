from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.lifecycle import State
from stoker.errors import NotFoundError, UsageError
from stoker.service.job_selection import count, find, find_one
from stoker.wire import NewJob, Selection
from unit.engine.engine_harness import FAILED, Harness


@pytest.fixture
def queue(harness: Harness) -> Harness:
    """Return a queue of six: 1 failed, 2 and 3 run, the others wait."""
    harness.add(NewJob(command="a", name="one"), project="vision")
    harness.now += 5
    harness.end("1.1", FAILED)
    harness.add(NewJob(command="b", name="two"), NewJob(command="c", name="two"))
    harness.add(NewJob(command="d", name="one"), NewJob(command="e", name="three"), project="text")
    harness.add("f", project="vision")
    return harness


def ids(harness: Harness, text: str | None = None, **more: Any) -> list[int]:
    return [job for job, _state in find(harness.context, Selection(ids=text, **more))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1", [1]),
        ("2-4", [2, 3, 4]),
        ("4,2-3,2", [2, 3, 4]),
        ("5-99", [5, 6]),
        ("@", [6]),
        ("three", [5]),
        ("vision/one", [1]),
        ("text/one", [4]),
        ("text/one/4", [4]),
        ("three, @ 1", [1, 5, 6]),
    ],
)
def test_jobs_are_found_as_they_are_named(queue: Harness, text: str, found: list[int]) -> None:
    assert ids(queue, text) == found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("9", "there is no job 9"),
        ("1,9", "there is no job 9"),
        ("7-9", "there are no jobs 7-9"),
        ("nobody", "there is no job 'nobody'"),
        ("text/two", "there is no job 'text/two'"),
        ("text/one/1", "there is no job 'text/one/1'"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(
    queue: Harness, text: str, complaint: str
) -> None:
    with pytest.raises(NotFoundError, match=complaint):
        ids(queue, text)
    with pytest.raises(NotFoundError, match=complaint):
        count(queue.context, Selection(ids=text))


def test_a_name_of_several_jobs_that_have_not_ended_is_an_error_that_lists_their_ids(
    queue: Harness,
) -> None:
    complaint = r"'two' names 2 jobs that have not ended \(2, 3\): use an id"
    with pytest.raises(UsageError, match=complaint):
        ids(queue, "two")
    with pytest.raises(UsageError, match=complaint):
        find_one(queue.context, "two")


def test_of_jobs_with_one_name_the_one_that_has_not_ended_is_meant_else_the_newest(
    queue: Harness,
) -> None:
    assert ids(queue, "one") == [4], "job 1 has ended"
    assert find_one(queue.context, "one") == 4
    assert count(queue.context, Selection(ids="one")) == {State.WAITING: 1}
    queue.end("3.1", FAILED)
    assert ids(queue, "two") == [2], "job 3 has ended"
    queue.end("2.1", FAILED)
    assert ids(queue, "two") == [3]


def test_a_verb_that_removes_jobs_takes_a_name_of_one_job_alone(queue: Harness) -> None:
    with pytest.raises(UsageError, match=r"'one' names 2 jobs \(1, 4\): use an id"):
        find(queue.context, Selection(ids="one"), one_of_name=True)


def test_of_very_many_not_all_ids_are_listed(harness: Harness) -> None:
    harness.add(*["a"] * 30, name="same")
    with pytest.raises(UsageError, match=r"names 30 jobs that have not ended \(1, 2, .*, 20, …\)"):
        ids(harness, "same")


def test_in_an_empty_queue_there_is_no_last_job(harness: Harness) -> None:
    with pytest.raises(NotFoundError, match="there is no job yet: add one with stoker add"):
        ids(harness, "@")


def test_states_and_projects_narrow_what_is_named(queue: Harness) -> None:
    assert ids(queue, states=[State.FAILED]) == [1]
    assert ids(queue, states=[State.FAILED, State.WAITING]) == [1, 4, 5, 6]
    assert ids(queue, project="vision") == [1, 6]
    assert ids(queue, project="vision", states=[State.WAITING]) == [6]
    assert ids(queue, "1-4", states=[State.RUNNING]) == [2, 3]
    assert ids(queue, "1-4", project="vision") == [1]
    assert ids(queue, all=True) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(NotFoundError, match="no project 'nobody'; projects: text, vision"):
        ids(queue, project="nobody")


def test_nothing_at_all_selects_nothing(queue: Harness) -> None:
    with pytest.raises(UsageError, match="give ids, a state"):
        ids(queue)


def test_the_one_job_that_is_meant(queue: Harness) -> None:
    assert find_one(queue.context, "@") == 6
    assert find_one(queue.context, "vision/one") == 1
    with pytest.raises(UsageError, match="'1-2' names 2 jobs: name one"):
        find_one(queue.context, "1-2")


terms = st.lists(
    st.one_of(
        st.integers(1, 12).map(str),
        st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
            lambda ends: f"{min(ends)}-{max(ends)}"
        ),
        st.just("@"),
    ),
    min_size=1,
    max_size=4,
).map(",".join)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "ids": terms,
                "states": st.lists(st.sampled_from(State), min_size=1, unique=True),
                "project": st.sampled_from(["even", "odd"]),
            },
        ).filter(bool),
        min_size=5,
        max_size=5,
    )
)
def test_what_is_counted_is_what_is_found(selections: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(Path(folder))
        for number in range(12):
            harness.add("a", project=("even", "odd")[number % 2], gpus=number % 2)
            harness.now += 5
            if number % 5 == 0:
                harness.end(harness.executor.running[0], FAILED if number % 2 else 0)
        for how in selections:
            found = find(harness.context, Selection(**how))
            assert count(harness.context, Selection(**how)) == Counter(
                state for _job, state in found
            )
        harness.close()
