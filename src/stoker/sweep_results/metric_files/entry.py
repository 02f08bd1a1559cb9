"""What a reader of a metric file returns: entries, each a mapping of names to numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

Entry = dict[str, Any]


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


def step_of(entry: Entry) -> float | None:
    """Return the step of an entry; None if it has none."""
    step = entry.get("step")
    return float(step) if isinstance(step, (int, float)) and math.isfinite(step) else None


def flatten(value: Any, prefix: str = "") -> Entry:
    """Return a nested mapping with dotted names; nothing for what is no mapping."""
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value} if prefix else {}
    found: Entry = {}
    for name, item in value.items():
        found.update(flatten(item, f"{prefix}{name}."))
    return found
