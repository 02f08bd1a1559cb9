from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.times import format_moment, parse_moment
from stoker.errors import UsageError

NOON = datetime(2027, 3, 10, 12, 0, 30).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("+10m", "2027-03-10 12:10:30"),
        ("+1d12h", "2027-03-12 00:00:30"),
        ("22:00", "2027-03-10 22:00:00"),
        ("9:05", "2027-03-11 09:05:00"),
        ("12:00", "2027-03-11 12:00:00"),
        ("12:00:31", "2027-03-10 12:00:31"),
        ("2027-03-11", "2027-03-11 00:00:00"),
        ("2027-03-11T08:00", "2027-03-11 08:00:00"),
        ("2027-03-11 08:00:15", "2027-03-11 08:00:15"),
    ],
)
def test_moments_are_read_in_local_time(text: str, moment: str) -> None:
    assert parse_moment(text, NOON) == datetime.fromisoformat(moment).timestamp()


def test_a_time_zone_is_respected() -> None:
    assert parse_moment("2027-03-11T08:00Z", NOON) == parse_moment("2027-03-11T10:00+02:00", NOON)


@pytest.mark.parametrize("text", ["2027-03-10", "2001-01-01T00:00", "2027-03-10T12:00:30"])
def test_the_past_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"{text} lies in the past"):
        parse_moment(text, NOON)


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "+", "+soon", "+0s", "tomorrow", "2027-13-01", "10m"]
)
def test_text_that_is_not_a_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, NOON)


@given(st.integers(0, 10**9))
def test_a_formatted_moment_is_parsed_to_the_same_moment(seconds: int) -> None:
    at = float(int(time.time()) + 86400 + seconds)

    # Twice a year an hour comes twice.
    assert abs(parse_moment(format_moment(at), time.time()) - at) in (0.0, 3600.0)
