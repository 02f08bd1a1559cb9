"""A million lines on stdin: memory stays bounded, and a job costs no more than in a short run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.arena import command_line, say
from benchmarks.measure import Contestant, Spread, spread
from benchmarks.proc import Watch
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.arena import Arena
    from benchmarks.measure import Sample

LINE = "true"
FEW = 10_000
MANY = 1_000_000
# Short runs on both sides of the long one: a machine that drifts meanwhile shows in their spread.
SHORT_RUNS_EACH_SIDE = 5
TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Observed:
    """One run and what was seen of its processes."""

    sample: Sample
    watch: Watch

    @property
    def cpu_us_per_job(self) -> float:
        """CPU time of the whole tree, jobs included."""
        return self.sample.cpu_per_job_s * 1e6

    @property
    def own_cpu_us_per_job(self) -> float:
        """CPU time of Stoker's own processes."""
        return self.watch.cpu_s / self.sample.jobs * 1e6


def run(arena: Arena) -> Result:
    """Run short, long, short."""
    with arena.home() as env:
        single = _contestant(arena, 1, env)
        short = _contestant(arena, FEW, env)
        long = _contestant(arena, MANY, env)
        _observe(arena, short)
        singles = [_observe(arena, single) for _ in range(SHORT_RUNS_EACH_SIDE)]
        shorts = [_observe(arena, short) for _ in range(SHORT_RUNS_EACH_SIDE)]
        million = _observe(arena, long)
        shorts += [_observe(arena, short) for _ in range(SHORT_RUNS_EACH_SIDE)]
    return _result([single, short, long], singles, shorts, million)


def _contestant(arena: Arena, jobs: int, env: Mapping[str, str]) -> Contestant:
    return Contestant(
        name="stoker",
        argv=[arena.peers.stoker.path, "run", "--gpus", "0,1,2,3"],
        stdin=arena.lines("direct", LINE, jobs),
        jobs=jobs,
        env=env,
        timeout_s=TIMEOUT_S,
    )


def _observe(arena: Arena, contestant: Contestant) -> Observed:
    say(f"  {contestant.jobs} lines")
    watch = Watch()
    sample = arena.run(contestant, watch, watch_every_s=0.05)
    return Observed(sample, watch)


def _growth(
    singles: Sequence[Observed],
    shorts: Sequence[Observed],
    million: Observed,
    cpu_s: Callable[[Observed], float],
) -> Spread:
    """Return the ratio of CPU per job, start-up taken off: spread over few jobs it hides growth."""
    start_up_s = spread([cpu_s(run) for run in singles]).median

    def per_job_s(run: Observed) -> float:
        return (cpu_s(run) - start_up_s) / run.sample.jobs

    return spread([per_job_s(million) / per_job_s(run) for run in shorts])


def _result(
    contestants: Sequence[Contestant],
    singles: Sequence[Observed],
    shorts: Sequence[Observed],
    million: Observed,
) -> Result:
    main_mb = million.watch.main_peak_bytes / 1e6
    helper_mb = million.watch.helper_peak_bytes / 1e6
    return Result(
        name="million",
        what=f"{MANY} lines `{LINE}` on stdin, beside runs of {FEW} before and after.",
        details=Table(
            (
                "lines",
                "runs",
                "jobs/s",
                "CPU µs/job, all",
                "CPU µs/job, Stoker's own",
                "peak MB, engine",
                "peak MB, largest helper",
            ),
            [_row(1, singles), _row(FEW, shorts), _row(MANY, [million])],
        ),
        figures=[
            Figure(
                name="peak memory of the engine's process",
                spread=Spread(main_mb, main_mb, main_mb),
                target=Target(Bound.LESS_THAN, 120.0),
                unit="MB",
                digits=1,
            ),
            Figure(
                name="peak memory of Stoker's largest other process",
                spread=Spread(helper_mb, helper_mb, helper_mb),
                target=Target(Bound.LESS_THAN, 120.0),
                unit="MB",
                digits=1,
            ),
            Figure(
                name=f"CPU per job, {MANY} ÷ {FEW} lines",
                spread=_growth(singles, shorts, million, lambda run: run.sample.cpu_s),
                target=Target(Bound.AT_MOST, 1.05),
            ),
            Figure(
                name=f"Stoker's own CPU per job, {MANY} ÷ {FEW} lines",
                spread=_growth(singles, shorts, million, lambda run: run.watch.cpu_s),
                target=Target(Bound.AT_MOST, 1.05),
            ),
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            "Quartiles are over the short runs. All = jobs too, by wait4; own = /proc/PID/stat.",
            "The ratios leave out start-up, which is what a run of one line takes.",
        ],
    )


def _row(jobs: int, runs: Sequence[Observed]) -> list[str]:
    def median(values: list[float]) -> float:
        return spread(values).median

    return [
        f"{jobs}",
        f"{len(runs)}",
        f"{median([run.sample.jobs_per_s for run in runs]):.0f}",
        f"{median([run.cpu_us_per_job for run in runs]):.1f}",
        f"{median([run.own_cpu_us_per_job for run in runs]):.1f}",
        f"{median([run.watch.main_peak_bytes / 1e6 for run in runs]):.1f}",
        f"{median([run.watch.helper_peak_bytes / 1e6 for run in runs]):.1f}",
    ]
