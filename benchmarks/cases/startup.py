"""Latency of `stoker --version`, compared with the start of Python."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 30


def run(arena: Arena) -> Result:
    """Start both, in turns."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    with arena.home() as env:
        contestants = [
            start_of("python", [arena.peers.python.path, "-c", "pass"], env),
            start_of("stoker", [arena.peers.stoker.path, "--version"], env),
        ]
        walls, rows = time_starts(arena, contestants)
    return Result(
        name="startup",
        what=f"Start to exit, {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name="wall time, stoker --version ÷ python -c pass",
                spread=ratios(walls["stoker"], walls["python"]),
                target=Target(Bound.AT_MOST, 2.0),
            )
        ],
        commands=[command_line(contestant) for contestant in contestants],
    )


def start_of(name: str, argv: Sequence[str], env: Mapping[str, str]) -> Contestant:
    """Return a program that is timed from its start to its exit."""
    return Contestant(name=name, argv=argv, stdin=os.devnull, jobs=1, env=env)


def time_starts(
    arena: Arena, contestants: Sequence[Contestant]
) -> tuple[dict[str, list[float]], list[list[str]]]:
    """Run each once unmeasured, then all in turns. Returns the times of each, and a table of them."""
    for contestant in contestants:
        arena.run(contestant)
    samples = interleave(contestants, arena.rounds, arena.run, arena.progress)
    walls = {name: [run.wall_s for run in runs] for name, runs in samples.items()}
    rows = []
    for name, values in walls.items():
        wall_ms = spread(values).scaled(1e3)
        rows.append([name, f"{wall_ms.median:.1f} ({wall_ms.q1:.1f} – {wall_ms.q3:.1f})"])
    return walls, rows
