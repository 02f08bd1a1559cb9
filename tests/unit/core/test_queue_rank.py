"""Ranks by expected run time: shorter jobs pass, and ageing bounds for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.queue_rank import PASSED_FOR_S, handicap_s, shortest_first_rank

_HOUR_S = 3600.0
_TIMES_US = st.integers(0, 4 * 10**15)
_SECONDS = st.floats(0.0, 1e12)
_OFFSETS = st.integers(0, 10**7)


def rank(added_at_s: float, expected_s: float, offset: int = 0) -> int:
    return shortest_first_rank(int(added_at_s * 1e6), offset, expected_s)


@given(_TIMES_US, _SECONDS, _OFFSETS, _SECONDS, _OFFSETS, st.integers(0, 10**12))
def test_no_job_added_a_week_later_passes_a_job(
    added_at_us: int, mine_s: float, mine: int, other_s: float, other: int, later_us: int
) -> None:
    week_us = int(PASSED_FOR_S * 1e6)
    first = shortest_first_rank(added_at_us, mine, mine_s)
    later = shortest_first_rank(added_at_us + week_us + later_us, other, other_s)
    assert first < later


@given(_TIMES_US, _SECONDS, _OFFSETS, st.integers(62_501, 10**12))
def test_equal_jobs_keep_their_order(
    added_at_us: int, seconds: float, offset: int, later_us: int
) -> None:
    first = shortest_first_rank(added_at_us, offset, seconds)
    assert first <= shortest_first_rank(added_at_us, offset + 1, seconds)
    assert first < shortest_first_rank(added_at_us + later_us, 0, seconds)


@given(st.floats(0.0, 1e7), st.floats(0.0, 1e7))
def test_of_two_jobs_added_together_the_longer_one_is_never_first(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert rank(1e9, short) <= rank(1e9, long)


@given(_SECONDS)
def test_every_handicap_is_shorter_than_the_bound(seconds: float) -> None:
    assert 0.0 <= handicap_s(seconds) < PASSED_FOR_S


def test_a_test_of_two_minutes_passes_runs_of_an_hour_added_two_days_before() -> None:
    assert rank(48 * _HOUR_S, 120.0) < rank(0.0, _HOUR_S)
    assert rank(60 * _HOUR_S, 120.0) > rank(0.0, _HOUR_S)


def test_ranks_fit_into_the_database_and_leave_room_for_moves() -> None:
    first, second = rank(1.8e9, _HOUR_S, 0), rank(1.8e9, _HOUR_S, 1)
    assert second - first == 256
    assert rank(4e9, 1e12, 10**7) < 2**63
