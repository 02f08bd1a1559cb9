"""Parsing and formatting of moments: +10m, 22:00, 2027-01-31 08:00.

Imports `datetime` late: `stoker show` formats moments, and does not parse any.
"""

from __future__ import annotations

import time

from stoker.core.durations import parse_duration
from stoker.errors import UsageError

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}))?"
_HINT = "write +10m, 22:00, 2027-01-31 or 2027-01-31T08:00"


def parse_moment(text: str, now: float) -> float:
    """Parse a moment to seconds of the Unix epoch; a time of day is the next one in local time."""
    import re
    from datetime import datetime

    if text.startswith("+"):
        return now + parse_duration(text[1:])
    clock = re.fullmatch(_CLOCK, text)
    if clock:
        return _next(text, [int(part or 0) for part in clock.groups()], now)
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
        at = moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"'{text}' is not a time: {_HINT}") from None
    if at <= now:
        raise UsageError(f"{text} lies in the past: {_HINT}")
    return at


def format_moment(at: float) -> str:
    """Format a moment as `parse_moment` reads it, in local time."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def _next(text: str, parts: list[int], now: float) -> float:
    from datetime import datetime, timedelta

    hour, minute, second = parts
    try:
        today = datetime.fromtimestamp(now).replace(
            hour=hour, minute=minute, second=second, microsecond=0
        )
    except ValueError:
        raise UsageError(f"'{text}' is not a time of day: {_HINT}") from None
    at = today.timestamp()
    return at if at > now else (today + timedelta(days=1)).timestamp()
