from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.turns import (
    HALF_LIFE_S,
    Claim,
    UseTally,
    decay,
    format_use,
    is_its_turn,
    next_in_line,
)


def claim(name: str, lead_s: float, gpus: str = "ab", wants: int = 1, uid: int = 7) -> Claim:
    return Claim(name=name, uid=uid, lead_s=lead_s, gpus=frozenset(gpus), wants=wants)


def test_use_halves_in_a_day() -> None:
    assert decay(100.0, HALF_LIFE_S) == 50.0
    tally = UseTally()
    tally.add(1, 100.0, 0.0)
    tally.add(1, 10.0, HALF_LIFE_S)
    assert tally.of(1, HALF_LIFE_S) == 60.0
    assert tally.of(2, 5.0) == 0.0
    assert list(tally.users()) == [1]


def test_the_claim_with_the_largest_lead_to_this_gpu_is_next() -> None:
    claims = [claim("x", 5.0), claim("y", 50.0, gpus="c"), claim("z", 9.0)]
    assert next_in_line(claims, "a", {}) == claims[2]
    assert next_in_line(claims, "c", {}) == claims[1]
    assert next_in_line(claims, "a", {"z": 1}) == claims[0]
    assert next_in_line(claims, "d", {}) is None


@pytest.mark.parametrize(
    ("lead_s", "job_s", "promised", "expected"),
    [
        (6.0, 10.0, 0, True),
        (5.0, 10.0, 0, False),
        (26.0, 10.0, 1, True),
        (25.0, 10.0, 1, False),
        (0.9, 0.001, 0, False),
        (1.1, 0.001, 0, True),
        (31.0, 36000.0, 0, True),
        (-5.0, 1.0, 0, False),
    ],
)
def test_a_lead_of_more_than_half_a_job_is_a_turn(
    lead_s: float, job_s: float, promised: int, expected: bool
) -> None:
    assert is_its_turn(claim("x", lead_s), job_s, promised) is expected


@given(st.floats(-1e6, 1e6), st.integers(0, 9), st.integers(0, 9))
def test_of_two_users_who_wait_exactly_one_is_ahead(lead_s: float, one: int, other: int) -> None:
    if one != other:
        ahead = claim("one", lead_s, uid=one).is_ahead_of(other)
        behind = claim("other", -lead_s, uid=other).is_ahead_of(one)
        assert ahead is not behind


@pytest.mark.parametrize(
    ("gpu_s", "text"),
    [
        (0.0, "0 GPU-seconds"),
        (1.0, "1 GPU-second"),
        (45.2, "45 GPU-seconds"),
        (90.0, "1.5 GPU-minutes"),
        (12 * 60, "12 GPU-minutes"),
        (3600.0, "1 GPU-hour"),
        (31 * 3600, "31 GPU-hours"),
    ],
)
def test_use_is_written_in_a_fitting_unit(gpu_s: float, text: str) -> None:
    assert format_use(gpu_s) == text
