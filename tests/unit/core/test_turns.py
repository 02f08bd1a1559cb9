from __future__ import annotations

import msgspec
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
    ("lead_s", "job_s", "holds", "promised", "expected"),
    [
        (6.0, 10.0, 0, 0, True),
        (5.0, 10.0, 0, 0, False),
        (0.0, 10.0, 1, 0, True),
        (-4.0, 10.0, 1, 0, True),
        (-5.0, 10.0, 1, 0, False),
        (0.0, 10.0, 4, 0, True),
        (0.0, 10.0, 3, 1, True),
        (0.0, 10.0, 2, 2, False),
        (0.9, 0.001, 0, 0, False),
        (1.1, 0.001, 0, 0, True),
        (31.0, 36000.0, 0, 0, True),
        (-5.0, 1.0, 1, 0, False),
    ],
)
def test_a_lead_of_more_than_half_a_job_after_the_next_ones_is_a_turn(
    lead_s: float, job_s: float, holds: int, promised: int, expected: bool
) -> None:
    assert is_its_turn(claim("x", lead_s), job_s, holds, promised=promised) is expected


def test_a_user_with_two_shares_is_due_two_of_three_gpus() -> None:
    equal = claim("x", 0.0)
    assert is_its_turn(
        Claim(**{**msgspec.structs.asdict(equal), "share": 2.0, "holds": 1}), 10.0, 2
    )
    assert not is_its_turn(
        Claim(**{**msgspec.structs.asdict(equal), "share": 2.0, "holds": 2}), 10.0, 1
    )


@given(
    st.floats(-1e6, 1e6),
    st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 3)),
    st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 3)),
)
def test_of_two_stokers_that_wait_exactly_one_is_ahead(
    lead_s: float, one: tuple[int, str, int, int], other: tuple[int, str, int, int]
) -> None:
    def view(who: tuple[int, str, int, int], lead_s: float) -> Claim:
        uid, name, needs, gathers = who
        return Claim(
            uid=uid, name=name, needs=needs, gathers=gathers, lead_s=lead_s, gpus=frozenset()
        )

    if one[:2] != other[:2]:
        is_first = view(one, lead_s).is_ahead_of(view(other, 0.0))
        is_second = view(other, -lead_s).is_ahead_of(view(one, 0.0))
        assert is_first is not is_second


@given(
    st.floats(-1e4, 1e4),
    st.floats(0.1, 100.0),
    st.integers(0, 8),
    st.integers(2, 8),
)
def test_what_is_yielded_to_a_large_job_is_not_given_back_at_once(
    lead_s: float, job_s: float, holds: int, needs: int
) -> None:
    large = Claim(name="x", uid=7, lead_s=lead_s, gpus=frozenset("a"), needs=needs)
    if is_its_turn(large, job_s, holds):
        holder = claim("y", -lead_s, uid=6)
        assert not holder.is_ahead_of(msgspec.structs.replace(large, lead_s=0.0, gathers=1))


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
