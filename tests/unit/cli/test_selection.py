from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.selection import format_ids, join_ids, name_jobs, parse_states
from stoker.core.lifecycle import State
from stoker.errors import UsageError


@pytest.mark.parametrize(
    ("ids", "text"),
    [([], ""), ([3], "3"), ([1, 2, 3, 7], "1-3,7"), ([9, 7, 8], "7-9"), ([1, 3, 5], "1,3,5")],
)
def test_ids_are_formatted_as_users_type_them(ids: list[int], text: str) -> None:
    assert format_ids(ids) == text


@given(st.sets(st.integers(1, 60)))
def test_formatted_ids_stand_for_the_same_ids(ids: set[int]) -> None:
    spans = [span.partition("-") for span in format_ids(list(ids)).split(",") if span]
    read = {number for low, _, high in spans for number in range(int(low), int(high or low) + 1)}

    assert read == ids


def test_a_long_list_of_ids_is_cut_between_two_ids() -> None:
    text = name_jobs(list(range(1, 1001, 2)))

    assert text.startswith("500 jobs: 1,3,5,")
    assert text.endswith(",…")
    assert len(text) < 250
    assert name_jobs([4]) == "job 4"


def test_several_words_are_joined_to_one_list() -> None:
    assert join_ids(["1", "2,4", "5-9"]) == "1,2,4,5-9"
    assert join_ids([]) is None


def test_states_are_parsed_in_any_case_and_in_lists() -> None:
    assert parse_states(["failed,Killed", "LOST"]) == [State.FAILED, State.KILLED, State.LOST]
    assert parse_states([]) == []


def test_an_unknown_state_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no such state; there are: waiting, held"):
        parse_states(["finished"])
