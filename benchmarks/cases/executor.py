"""Trivial Python functions, each in a fresh process: `stoker.Executor` and the standard library's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks import calls
from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

LINE = "call"
CALLS = 200
QUICK_CALLS = 50


def run(arena: Arena) -> Result:
    """Race the two; both have their start and end inside."""
    count = QUICK_CALLS if arena.quick else CALLS
    with arena.home() as env:
        contestants = [
            Contestant(
                name=name,
                argv=[arena.peers.python.path, os.path.relpath(calls.__file__), name],
                stdin=arena.lines("calls", LINE, count),
                jobs=count,
                env=env,
            )
            for name in ("pool", "stoker")
        ]
        samples = arena.race(contestants, LINE)
    return Result(
        name="executor",
        what=f"{count} calls of `len`, {calls.PLACES} at once, {arena.rounds} interleaved rounds.",
        details=standings(samples, "pool"),
        figures=[pace_figure(samples, "stoker", "pool", Target(Bound.AT_LEAST, 0.8))],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            "pool is ProcessPoolExecutor with max_tasks_per_child=1 and the start method spawn.",
            "Stoker's calls have a GPU each, its lease, and a record of how they ended.",
        ],
    )
