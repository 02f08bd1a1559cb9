"""Shell lines on four slots: the common case of all peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

LINE = "true && true"
JOBS = 5000
# GNU parallel takes milliseconds per job; a shorter file keeps its share of a round bearable.
PARALLEL_JOBS = 1000
QUICK_JOBS = 1000


def run(arena: Arena) -> Result:
    """Compare all contestants on the same shell lines."""
    peers = arena.peers
    jobs = QUICK_JOBS if arena.quick else JOBS
    lines = arena.lines("shell", LINE, jobs)
    fewer = arena.lines("shell", LINE, min(jobs, PARALLEL_JOBS))
    sgs = [peers.simple_gpu_scheduler.path, "--gpus", "0", "1", "2", "3"]
    with arena.home() as env:
        contestants = [
            Contestant(
                name="xargs",
                argv=[peers.xargs.path, "-P4", "-d", "\\n", "-n1", "sh", "-c"],
                stdin=lines,
                jobs=jobs,
                env=env,
            ),
            Contestant(
                name="stoker",
                argv=[peers.stoker.path, "run", "--gpus", "0,1,2,3"],
                stdin=lines,
                jobs=jobs,
                env=env,
            ),
            Contestant(
                name="simple_gpu_scheduler",
                argv=sgs,
                stdin=lines,
                jobs=jobs,
                env=env,
            ),
            Contestant(
                name="parallel",
                argv=[peers.parallel.path, "--will-cite", "-j4"],
                stdin=fewer,
                jobs=min(jobs, PARALLEL_JOBS),
                env=env,
            ),
        ]
        samples = arena.race(contestants, LINE)
    return Result(
        name="throughput_shell",
        what=f"Lines `{LINE}` at 4 slots, {arena.rounds} interleaved rounds.",
        details=standings(samples, "xargs"),
        figures=[
            pace_figure(samples, "stoker", "xargs", Target(Bound.AT_LEAST, 1.0)),
            pace_figure(samples, "stoker", "simple_gpu_scheduler", Target(Bound.MORE_THAN, 1.0)),
            pace_figure(samples, "stoker", "parallel", Target(Bound.AT_LEAST, 6.0)),
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[f"GNU parallel gets at most {PARALLEL_JOBS} lines; jobs per second compare."],
    )
