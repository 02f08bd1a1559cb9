"""The compatible simple_gpu_scheduler compared with the original, both started like users do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

LINE = "true && true"
JOBS = 3000
QUICK_JOBS = 500
_GPUS = ["--gpus", "0", "1", "2", "3"]


def run(arena: Arena) -> Result:
    """Race both on the same lines."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    door = os.path.join(os.path.dirname(arena.peers.stoker.path), "simple_gpu_scheduler")
    with arena.home() as env:
        contestants = [
            Contestant(
                name=name,
                argv=[program, *_GPUS],
                stdin=arena.lines("door", LINE, jobs),
                jobs=jobs,
                env=env,
            )
            for name, program in (
                ("original", arena.peers.simple_gpu_scheduler.path),
                ("door", door),
            )
        ]
        samples = arena.race(contestants, LINE)
    return Result(
        name="door_lines",
        what=f"Lines `{LINE}` at 4 slots, {arena.rounds} interleaved rounds.",
        details=standings(samples, "original"),
        figures=[pace_figure(samples, "door", "original", Target(Bound.AT_LEAST, 1.0))],
        commands=[command_line(contestant) for contestant in contestants],
    )
