"""Parsing and formatting of durations.

Imports `re` late: `stoker ls` formats durations, and does not parse any.
"""

from __future__ import annotations

from stoker.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = r"\d{1,9}(?:\.\d{1,9})?[smhdw]"
_PARTS = f"{_PART}(?: ?{_PART})*"
_CLOCK = r"(?:(\d{1,9}):)?(\d{1,2}):(\d{2})"


def parse_duration(text: str) -> float:
    """Parse `90s`, `2h`, `1d12h`, `3m 05s`, `1.5h` or `HH:MM:SS` into seconds.

    A number without a unit is an error.
    """
    import re

    clock = re.fullmatch(_CLOCK, text)
    if clock and clock[1] is not None:
        seconds: float = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    elif re.fullmatch(_PARTS, text):
        found = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", text)
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in found)
    elif text.replace(".", "", 1).isdigit():
        raise UsageError(f"'{text}' has no unit: write {text}s, {text}m or {text}h")
    else:
        raise UsageError(f"'{text}' is not a duration: write 90s, 2h, 1d12h or HH:MM:SS")
    if seconds <= 0:
        raise UsageError(f"'{text}' is not longer than zero: write 90s, 2h, 1d12h or HH:MM:SS")
    return seconds


def parse_option(option: str, text: str) -> float:
    """Parse the duration of an option; an error names the option."""
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def parse_limit(text: str) -> float | None:
    """Parse a duration as `parse_duration` does, and `never` as None."""
    if text in ("never", "none"):
        return None
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{error}, or never") from None


def parse_span(text: str) -> float:
    """Parse a duration as `parse_duration` does, and accept 0 too."""
    return 0.0 if text in ("0", "0s") else parse_duration(text)


def spell_duration(seconds: float) -> str:
    """Write a duration in the form that `parse_duration` reads: 1d12h, 90s."""
    text, rest = "", seconds
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60)):
        count, rest = divmod(rest, size_s)
        text += f"{count:.0f}{unit}" if count else ""
    seconds_left = f"{rest:.6f}".rstrip("0").rstrip(".")
    return f"{text}{seconds_left}s" if seconds_left != "0" or not text else text


def format_duration(seconds: float) -> str:
    """Write a duration in its two largest units: 0.4s, 12s, 3m 05s, 1h 02m, 2d 03h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    for unit, size_s, part, part_s in (("d", 86400, "h", 3600), ("h", 3600, "m", 60)):
        if whole >= size_s:
            return f"{whole // size_s}{unit} {whole % size_s // part_s:02}{part}"
    return f"{whole // 60}m {whole % 60:02}s"


def format_roughly(seconds: float) -> str:
    """Write roughly how long something takes: 0s, 40s, 5m, 3h, 2d."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60)):
        # A unit is used from two of it on: 90m says more than 1h.
        if seconds >= size_s * 2:
            return f"{int(seconds // size_s)}{unit}"
    return f"{int(seconds)}s"


def format_ago(seconds: float) -> str:
    """Write roughly how long ago something happened: now, 40s ago, 5m ago, 3h ago, 2d ago."""
    return f"{format_roughly(seconds)} ago" if seconds >= 1 else "now"


def format_left(seconds: float) -> str:
    """Write roughly how much time is left: ~5m left; `any moment` if the time is up."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size_s * (2 if size_s > 1 else 1):
            return f"~{seconds / size_s:.0f}{unit} left"
    return "any moment"
