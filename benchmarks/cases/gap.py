"""Idle time of a slot between the end of a job and the start of the next one."""

from __future__ import annotations

import itertools
import os
import statistics
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, interleave, ratios, spread
from benchmarks.report import Bound, Figure, Result, Table, Target
from benchmarks.stamp import build_stamp, read_stamps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.arena import Arena

JOBS = 1000
QUICK_JOBS = 300


def run(arena: Arena) -> Result:
    """Run jobs that note their own start and end, on one slot."""
    jobs = QUICK_JOBS if arena.quick else JOBS
    # `exec` makes the job's shell and the stamping program one process: its exit is the job's.
    line = f"exec {build_stamp(arena.folder)}"
    lines = arena.lines("gap", line, jobs)
    stamps = os.path.abspath(os.path.join(arena.folder, "stamps"))
    peers = arena.peers
    with arena.home() as home_env:
        env = {**home_env, "BENCH_STAMPS": stamps}
        contestants = [
            Contestant(name=name, argv=argv, stdin=lines, jobs=jobs, env=env)
            for name, argv in (
                ("xargs", [peers.xargs.path, "-P1", "-d", "\\n", "-n1", "sh", "-c"]),
                ("stoker", [peers.stoker.path, "run", "--gpus", "0"]),
                ("simple_gpu_scheduler", [peers.simple_gpu_scheduler.path, "--gpus", "0"]),
            )
        ]

        def gaps_of(contestant: Contestant) -> list[float]:
            with open(stamps, "wb"):
                pass
            arena.run(contestant)
            return read_gaps_us(stamps, contestant)

        for contestant in contestants:
            gaps_of(contestant)
        gaps = interleave(contestants, arena.rounds, gaps_of, arena.progress)
    return _result(arena, contestants, jobs, gaps)


def read_gaps_us(path: str, contestant: Contestant) -> list[float]:
    """Return the microseconds between each job's end and the next one's start."""
    jobs = read_stamps(path)
    if len(jobs) != contestant.jobs:
        raise BenchError(f"{contestant.name} ran {len(jobs)} of {contestant.jobs} jobs")
    gaps_us = [(after - end) / 1e3 for (_, end), (after, _) in itertools.pairwise(jobs)]
    if min(gaps_us) < 0:
        raise BenchError(f"{contestant.name} ran two jobs at once on one slot")
    return gaps_us


def _result(
    arena: Arena,
    contestants: Sequence[Contestant],
    jobs: int,
    gaps: dict[str, list[list[float]]],
) -> Result:
    p50s = {name: [statistics.median(run) for run in runs] for name, runs in gaps.items()}
    rows = []
    for name, runs in gaps.items():
        p50 = spread(p50s[name])
        ratio = ratios(p50s[name], p50s["xargs"])
        p99 = spread([statistics.quantiles(run, n=100)[98] for run in runs])
        rows.append(
            [
                name,
                f"{p50.median:.0f} ({p50.q1:.0f} – {p50.q3:.0f})",
                f"{p99.median:.0f}",
                f"{ratio.median:.3f} ({ratio.q1:.3f} – {ratio.q3:.3f})",
            ]
        )
    return Result(
        name="gap",
        what=f"{jobs} jobs one after another on one slot, {arena.rounds} interleaved rounds.",
        details=Table(("contestant", "gap p50 µs (quartiles)", "p99 µs", "p50 ÷ xargs"), rows),
        figures=[
            Figure(
                name="gap p50, stoker ÷ xargs",
                spread=ratios(p50s["stoker"], p50s["xargs"]),
                target=Target(Bound.AT_MOST, 1.25),
            )
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            "The next job's start is taken in its program: the shell's own start is in the gap."
        ],
    )
