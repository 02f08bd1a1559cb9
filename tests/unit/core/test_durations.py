from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.core.durations import (
    format_ago,
    format_duration,
    format_roughly,
    parse_duration,
    parse_limit,
)
from stoker.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2h", 7200),
        ("1d12h", 129600),
        ("1.5h", 5400),
        ("0.5s", 0.5),
        ("1w", 604800),
        ("1h30m", 5400),
        ("30m", 1800),
        ("01:02:03", 3723),
        ("100:00:00", 360000),
        ("0:00:01", 1),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_a_limit_is_a_duration_or_never() -> None:
    assert parse_limit("20m") == 1200
    assert parse_limit("never") is None
    with pytest.raises(UsageError, match="HH:MM:SS, or never"):
        parse_limit("soon")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "59s"), (119, "119s"), (900, "15m"), (7200, "2h"), (2e5, "2d")],
)
def test_a_rough_duration_has_one_unit(seconds: float, text: str) -> None:
    assert format_roughly(seconds) == text


def test_a_bare_number_is_refused_with_what_it_could_have_meant() -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration("90")

    assert str(caught.value) == ("'90' has no unit: write 90s, 90m or 90h")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "h2",
        "2 h",
        "2h  3m",
        "2h ",
        "-2h",
        "2x",
        "1h2",
        "1:2",
        "10:30",
        "1e3s",
        "nan",
        "inf",
        "1:2:3",
    ],
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="write 90s, 2h, 1d12h or HH:MM:SS"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0s", "0h0m", "00:00:00", "0.0d"])
def test_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not longer than zero"):
        parse_duration(text)


@given(st.text() | st.from_regex(r"[0-9.]{0,5}[smhdw:0-9]{0,8}", fullmatch=True))
@example("9" * 400 + "s")
@example("9" * 400 + ":00:00")
@example("9" * 5000 + ":00:00")
def test_any_text_gives_a_time_that_a_clock_can_count_or_one_clear_line(text: str) -> None:
    complaint = ""
    seconds: float = 1.0
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        complaint = str(error)

    assert complaint or (math.isfinite(float(seconds)) and seconds > 0)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_a_clocks_time_is_the_same_in_parts(hours: int, minutes: int, seconds: int) -> None:
    if hours + minutes + seconds:
        clock = parse_duration(f"{hours}:{minutes:02}:{seconds:02}")
        assert clock == parse_duration(f"{hours}h{minutes}m{seconds}s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.44, "0.4s"),
        (9.94, "9.9s"),
        (12.9, "12s"),
        (59.9, "59s"),
        (60, "1m 00s"),
        (185, "3m 05s"),
        (3723, "1h 02m"),
        (86399, "23h 59m"),
        (183840, "2d 03h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(0, 1e9))
def test_any_duration_is_written_on_one_short_line(seconds: float) -> None:
    assert 0 < len(format_duration(seconds)) < 20


@given(st.floats(0.1, 1e8))
def test_what_is_written_can_be_typed(seconds: float) -> None:
    typed = parse_duration(format_duration(seconds))

    assert typed == pytest.approx(seconds, rel=0.05, abs=0.06) or (typed <= seconds < typed * 1.1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "now"),
        (0.4, "now"),
        (1, "1s ago"),
        (119, "119s ago"),
        (120, "2m ago"),
        (7199, "119m ago"),
        (7200, "2h ago"),
        (86400 * 2 - 1, "47h ago"),
        (86400 * 400, "400d ago"),
    ],
)
def test_how_long_ago_is_told_roughly(seconds: float, text: str) -> None:
    assert format_ago(seconds) == text
