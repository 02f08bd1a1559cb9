from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import ConflictError, UsageError
from unit.engine.engine_harness import Harness, MakeHarness


@pytest.fixture
def paused(make_harness: MakeHarness) -> Harness:
    """Return a harness whose queue waits."""
    harness = make_harness(gpus=1)
    harness.pause(queue=True)
    return harness


def order(harness: Harness) -> list[int]:
    rows = harness.database.execute(
        "SELECT id FROM job WHERE state = 'waiting' ORDER BY priority DESC, rank, id"
    )
    return [job for (job,) in rows]


def test_a_job_comes_to_a_position_and_the_others_make_room(paused: Harness) -> None:
    paused.add(*"abcde")

    moved = paused.move("5")
    assert (moved.id, moved.position, moved.notice) == (5, 1, None)
    assert order(paused) == [5, 1, 2, 3, 4]
    assert paused.move("5", 3).position == 3
    assert order(paused) == [1, 2, 5, 3, 4]
    assert paused.move("1", 99).position == 5
    assert order(paused) == [2, 5, 3, 4, 1]
    assert paused.move("1", 5).position == 5

    paused.resume(queue=True)
    assert paused.executor.running == ["2.1"]


def test_past_another_priority_it_takes_that_over_and_says_so(paused: Harness) -> None:
    paused.add("a", "b")
    paused.add("high", "higher", priority=5)

    moved = paused.move("2")
    assert moved.notice == "job 2 has priority 5 now instead of 0, as its neighbours there"
    assert order(paused) == [2, 3, 4, 1]

    assert paused.move("3", 4).notice is not None
    assert order(paused) == [2, 4, 1, 3]
    assert paused.column("priority", 3) == 0


def test_between_two_priorities_it_keeps_its_own_if_that_fits(paused: Harness) -> None:
    paused.add("low")
    paused.add("middle", priority=3)
    paused.add("high", priority=9)

    assert paused.move("2", 2).notice is None
    assert order(paused) == [3, 2, 1]


def test_what_does_not_wait_has_no_position(harness: Harness) -> None:
    harness.add("a")
    with pytest.raises(ConflictError, match="job 1 is running: only what waits"):
        harness.move("1")


def test_a_thousand_moves_to_one_place_never_run_out_of_room(paused: Harness) -> None:
    paused.add(*["x"] * 300)
    expected = order(paused)
    for number in range(1000):
        job = expected[-1 - number % 7]
        paused.move(str(job), 2)
        expected.remove(job)
        expected.insert(1, job)
        if number % 100 == 0:
            assert order(paused) == expected

    assert order(paused) == expected


@settings(max_examples=30, deadline=None)
@given(
    priorities=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    moves=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 10)), max_size=60),
)
def test_any_moves_lead_where_a_list_would(
    tmp_path_factory: pytest.TempPathFactory,
    priorities: list[int],
    moves: list[tuple[int, int]],
) -> None:
    harness = Harness(tmp_path_factory.mktemp("home"), gpus=1)
    harness.pause(queue=True)
    for priority in priorities:
        harness.add("x", priority=priority)
    expected = order(harness)
    for index, position in moves:
        job = index % len(priorities) + 1
        moved = harness.move(str(job), position)
        expected.remove(job)
        expected.insert(position - 1, job)
        assert order(harness) == expected
        assert moved.position == expected.index(job) + 1
    harness.close()


def test_a_job_comes_just_before_or_behind_another_one(paused: Harness) -> None:
    paused.add(*"abcde")

    assert paused.move("5", before="2").position == 2
    assert order(paused) == [1, 5, 2, 3, 4]
    assert paused.move("1", behind="3").position == 4
    assert order(paused) == [5, 2, 3, 1, 4]
    assert paused.move("2", before="1").position == 3
    assert order(paused) == [5, 3, 2, 1, 4]
    assert paused.move("4", behind="5").position == 2
    assert order(paused) == [5, 4, 3, 2, 1]


def test_beside_one_of_another_priority_it_takes_that_over(paused: Harness) -> None:
    paused.add("a", priority=5)
    paused.add("b", "c")

    moved = paused.move("3", before="1")
    assert moved.notice == "job 3 has priority 5 now instead of 0, as its neighbours there"
    assert order(paused) == [3, 1, 2]


def test_there_is_no_place_beside_what_does_not_wait(paused: Harness) -> None:
    paused.add("a", "b")
    paused.hold("2")

    with pytest.raises(ConflictError, match="job 2 is held"):
        paused.move("1", before="2")
    with pytest.raises(UsageError, match="not both"):
        paused.move("1", before="1", behind="1")
