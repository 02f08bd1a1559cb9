"""Results as Markdown: the terminal and RESULTS.md get the same text."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Spread


class Bound(enum.Enum):
    """How a figure must stand to its limit."""

    AT_LEAST = "≥"
    MORE_THAN = ">"
    AT_MOST = "≤"
    LESS_THAN = "<"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure has to reach."""

    bound: Bound
    limit: float

    def holds(self, value: float) -> bool:
        """Tell whether `value` reaches the target, unrounded."""
        if self.bound is Bound.AT_LEAST:
            return value >= self.limit
        if self.bound is Bound.MORE_THAN:
            return value > self.limit
        if self.bound is Bound.AT_MOST:
            return value <= self.limit
        return value < self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number held against its target; its median decides."""

    name: str
    spread: Spread
    target: Target
    unit: str = "×"
    digits: int = 3

    @property
    def holds(self) -> bool:
        """Tell whether the target is reached."""
        return self.target.holds(self.spread.median)

    def row(self) -> list[str]:
        """Return the figure as cells of a table."""
        show = f"{{:.{self.digits}f}}".format
        quartiles = f"{show(self.spread.q1)} – {show(self.spread.q3)}"
        return [
            self.name,
            f"{show(self.spread.median)} {self.unit}",
            quartiles if self.spread.q1 != self.spread.q3 else "–",
            f"{self.target.bound.value} {self.target.limit:g} {self.unit}",
            "holds" if self.holds else "**FALLS SHORT**",
        ]


@dataclass(frozen=True, slots=True)
class Table:
    """A header and its rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one benchmark found."""

    name: str
    what: str
    details: Table
    figures: Sequence[Figure]
    commands: Sequence[str] = field(default=())
    notes: Sequence[str] = field(default=())


def render_table(table: Table) -> str:
    """Return an aligned Markdown table."""
    lines = [list(table.header), *[list(row) for row in table.rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
    padded = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def render_result(result: Result) -> str:
    """Return a benchmark's section."""
    figures = Table(
        ("figure", "median", "quartiles", "target", "verdict"),
        [figure.row() for figure in result.figures],
    )
    parts = [
        f"## {result.name}",
        result.what,
        render_table(result.details),
        render_table(figures),
    ]
    if result.commands:
        parts.append("\n".join(["```sh", *result.commands, "```"]))
    parts.extend(result.notes)
    return "\n\n".join(parts) + "\n"


def render_verdict(results: Sequence[Result]) -> str:
    """Return the last section: what holds and what falls short."""
    figures = [(result.name, figure) for result in results for figure in result.figures]
    short = [f"{name}: {figure.name}" for name, figure in figures if not figure.holds]
    if not short:
        return f"## Verdict\n\nAll {len(figures)} figures hold.\n"
    listed = "\n".join(f"- {line}" for line in short)
    return f"## Verdict\n\n{len(short)} of {len(figures)} figures **FALL SHORT**:\n\n{listed}\n"


def all_hold(results: Sequence[Result]) -> bool:
    """Tell whether every figure reaches its target."""
    return all(figure.holds for result in results for figure in result.figures)
