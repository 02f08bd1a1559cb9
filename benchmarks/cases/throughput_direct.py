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
PARALLEL_JOBS = 1000
QUICK_JOBS = 1000


def run(arena: Arena) -> Result:
    """Race Stoker and xargs, both starting `true` itself; the others cannot but use a shell."""
    peers = arena.peers
    jobs = QUICK_JOBS if arena.quick else JOBS
    few = min(jobs, PARALLEL_JOBS)
    with arena.home() as env:
        contestants = [
            Contestant(
                name=name, argv=argv, stdin=arena.lines("direct", LINE, count), jobs=count, env=env
            )
            for name, argv, count in (
                ("xargs", [peers.xargs.path, "-P4", "-n1", "true"], jobs),
                ("stoker", [peers.stoker.path, "run", "--gpus", "0,1,2,3"], jobs),
                (
                    "simple_gpu_scheduler",
                    [peers.simple_gpu_scheduler.path, "--gpus", "0", "1", "2", "3"],
                    jobs,
                ),
                ("parallel", [peers.parallel.path, "--will-cite", "-j4"], few),
            )
        ]
        samples = arena.race(contestants, LINE)
    return Result(
        name="throughput_direct",
        what=f"Lines `{LINE}` at 4 slots, {arena.rounds} interleaved rounds.",
        details=standings(samples, "xargs"),
        figures=[
            pace_figure(samples, "stoker", "xargs", Target(Bound.AT_LEAST, 1.15)),
            pace_figure(samples, "stoker", "simple_gpu_scheduler", Target(Bound.MORE_THAN, 1.0)),
            pace_figure(samples, "stoker", "parallel", Target(Bound.AT_LEAST, 6.0)),
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            "Stoker and xargs start `true` itself: xargs hands it the line as an argument.",
            "The other two give every line to a shell, whose `true` is built in.",
            f"GNU parallel gets at most {PARALLEL_JOBS} lines; jobs per second compare.",
        ],
    )
