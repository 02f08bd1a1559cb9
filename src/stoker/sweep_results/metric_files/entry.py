"""What a reader of a metric file returns: entries, each a mapping of names to numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

Entry = dict[str, Any]
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for a text that is no JSON, or is nested too deep."""

_DEEPEST = 32


class Batch(NamedTuple):
    """The entries that are new since the last time. With `restarted` all entries before are void."""

    entries: list[Entry]
    restarted: bool = False


class Reader(Protocol):
    """Reads one kind of file of a run. All content is a job's output: it may be damaged or endless."""

    def read(self, *, is_last: bool) -> Batch:
        """Return what is new. With `is_last` also what looks unfinished, because no more is to come."""


def to_numbers(row: Mapping[Any, Any]) -> Entry:
    """Return the numbers of a row; texts become numbers if they are some."""
    found: Entry = {}
    for name, value in row.items():
        if isinstance(name, str) and name and isinstance(value, (str, int, float)):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            found[name] = int(number) if number.is_integer() and abs(number) < 2**53 else number
    return found


def to_float(value: object) -> float | None:
    """Return a number as a float; None for what is no number, or an integer beyond all floats."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def step_of(entry: Entry) -> float | None:
    """Return the step of an entry; None if it has none."""
    step = to_float(entry.get("step"))
    return step if step is not None and math.isfinite(step) else None


def flatten(value: Any, prefix: str = "", depth: int = 0) -> Entry:
    """Return a nested mapping with dotted names; nothing for what is no mapping, or is nested too deep."""
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value} if prefix else {}
    found: Entry = {}
    if depth < _DEEPEST:
        for name, item in value.items():
            found.update(flatten(item, f"{prefix}{name}.", depth + 1))
    return found
