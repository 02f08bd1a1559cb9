"""One job through a pipe, from the start of the program to its exit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.cases.startup import time_starts
from benchmarks.measure import Contestant, ratios
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

MIN_ROUNDS = 30


def run(arena: Arena) -> Result:
    """Run a single `true` on one slot."""
    arena = dataclasses.replace(arena, rounds=max(arena.rounds, MIN_ROUNDS))
    line = arena.lines("pipe", "true", 1)
    peers = arena.peers
    with arena.home() as env:
        contestants = [
            Contestant(name=name, argv=argv, stdin=line, jobs=1, env=env)
            for name, argv in (
                ("xargs", [peers.xargs.path, "-P1", "-d", "\\n", "-n1", "sh", "-c"]),
                ("parallel", [peers.parallel.path, "-j1"]),
                ("stoker", [peers.stoker.path, "run", "--gpus", "0"]),
                ("simple_gpu_scheduler", [peers.simple_gpu_scheduler.path, "--gpus", "0"]),
            )
        ]
        walls, rows = time_starts(arena, contestants)
    return Result(
        name="pipe",
        what=f"One line `true`, start to exit, {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "ms (quartiles)"), rows),
        figures=[
            Figure(
                name="wall time, stoker ÷ simple_gpu_scheduler",
                spread=ratios(walls["stoker"], walls["simple_gpu_scheduler"]),
                target=Target(Bound.AT_MOST, 1.2),
            )
        ],
        commands=[command_line(contestant) for contestant in contestants],
    )
