"""The table of faults: what was done to Stoker how often, and what went wrong."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from scale import LONG

PROPERTY = "fault"
_TITLES = ("fault", "rounds", "lost", "started twice", "GPU overlaps", "leaked", "stranded")


class Entry(NamedTuple):
    """What one test has found."""

    fault: str
    rounds: int
    lost: int
    twice: int
    overlaps: int
    leaked: int
    stranded: int


def format_table(found: Sequence[Sequence[Any]], failed: Container[str]) -> str:
    """All entries, those of the same fault added up, and what there is to say about them."""
    sums: dict[str, Counter[int]] = {}
    details: dict[str, Counter[str]] = {}
    for fault, *counts, more in found:
        sums.setdefault(fault, Counter()).update(dict(enumerate(counts)))
        details.setdefault(fault, Counter()).update(more)
    rows = [
        [
            f"{fault} (FAILED)" if fault in failed else fault,
            *(f"{counts[column]:,}" for column in range(len(_TITLES) - 1)),
        ]
        for fault, counts in sorted(sums.items())
    ]
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    lines = [_line(_TITLES, widths), "-" * (sum(widths) + 2 * len(widths) - 2)]
    lines += [_line(row, widths) for row in rows]
    for fault, counted in sorted(details.items()):
        if counted:
            lines += ["", f"{fault}:"]
            lines += [f"{count:6}  {what}" for what, count in counted.items()]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = [
        cell.ljust(width) if not column else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *rest])


def say(text: str) -> None:
    """Tell how far a long test is; also where its standard output is somebody else's."""
    if LONG:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
