"""Lines that need no shell: each job is one exec of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

LINE = "true"
JOBS = 5000
QUICK_JOBS = 1000


def run(arena: Arena) -> Result:
    """Race Stoker and xargs, both starting `true` itself."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    lines = arena.lines("direct", LINE, jobs)
    with arena.home() as env:
        contestants = [
            Contestant(
                name="xargs",
                argv=[arena.peers.xargs.path, "-P4", "-n1", "true"],
                stdin=lines,
                jobs=jobs,
                env=env,
            ),
            Contestant(
                name="stoker",
                argv=[arena.peers.stoker.path, "run", "--gpus", "0,1,2,3"],
                stdin=lines,
                jobs=jobs,
                env=env,
            ),
        ]
        samples = arena.race(contestants, LINE)
    return Result(
        name="throughput_direct",
        what=f"Lines `{LINE}` at 4 slots with no shell, {arena.rounds} interleaved rounds.",
        details=standings(samples, "xargs"),
        figures=[pace_figure(samples, "stoker", "xargs", Target(Bound.AT_LEAST, 1.15))],
        commands=[command_line(contestant) for contestant in contestants],
        notes=["xargs hands each line to `true` as an argument: one exec per job on both sides."],
    )
