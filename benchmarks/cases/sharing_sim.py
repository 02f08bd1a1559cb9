"""The sharing policy on simulated random sweeps, compared with one GPU per job and the shortest time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import Spread, spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from stoker.simulator.comparison import Comparison

SEEDS = 20
LEAST_SATURATING = 0.25


def run(_arena: Arena) -> Result:
    """Let every policy do the same work, on a large and on a small machine."""
    from stoker.simulator.workload import Machine

    rows: list[list[str]] = []
    figures: list[Figure] = []
    for machine in (Machine(8, 80 << 30), Machine(4, 24 << 30)):
        contests = _contests(machine)
        rows += [_row(machine.text, name, contests) for name in contests[0].outcomes]
        figures += _figures(machine.text, contests)
    return Result(
        name="sharing_sim",
        what=f"`stoker simulate --seeds {SEEDS}`: random sweeps, of whose runs at least "
        f"{LEAST_SATURATING:.0%} saturate a GPU; the policy's own code on a simulated clock.",
        details=Table(
            (
                "machine",
                "policy",
                "faster than a GPU each",
                "÷ lower bound",
                "out of memory",
                "lost",
            ),
            rows,
        ),
        figures=figures,
        commands=[f".venv/bin/stoker simulate --seeds {SEEDS}"],
        notes=["`gpulimit` runs each job once: what crashes is lost, and counts for its time."],
    )


def _contests(machine: object) -> list[Comparison]:
    from stoker.simulator.comparison import compete
    from stoker.simulator.workload import Machine, draw, saturating_share

    assert isinstance(machine, Machine)
    contests = []
    for seed in range(SEEDS):
        works = draw(seed, machine)
        if saturating_share(works) < LEAST_SATURATING:
            raise BenchError(f"seed {seed}: too few runs saturate a GPU")
        contests.append(compete(works, machine))
    return contests


def _row(machine: str, name: str, contests: list[Comparison]) -> list[str]:
    faster = spread([contest.speedup(name) for contest in contests])
    over = spread([contest.over_bound(name) for contest in contests])
    jobs = sum(contest.outcomes[name].jobs for contest in contests)
    ooms = sum(contest.outcomes[name].ooms for contest in contests)
    lost = sum(contest.outcomes[name].lost for contest in contests)
    return [
        machine,
        name,
        f"{faster.median:.2f}× ({faster.q1:.2f} – {faster.q3:.2f})",
        f"{over.median:.2f} ({over.q1:.2f} – {over.q3:.2f})",
        f"{ooms} of {jobs}",
        str(lost),
    ]


def _figures(machine: str, contests: list[Comparison]) -> list[Figure]:
    ours = [contest.outcomes["stoker"] for contest in contests]
    jobs = sum(outcome.jobs for outcome in ours)
    ooms_pct = 100 * sum(outcome.ooms for outcome in ours) / jobs
    lost = float(sum(outcome.lost for outcome in ours))
    return [
        Figure(
            name=f"{machine}: faster than a GPU for each job",
            spread=spread([contest.speedup("stoker") for contest in contests]),
            target=Target(Bound.AT_LEAST, 1.6),
            digits=2,
        ),
        Figure(
            name=f"{machine}: time ÷ lower bound",
            spread=spread([contest.over_bound("stoker") for contest in contests]),
            target=Target(Bound.AT_MOST, 1.4),
            digits=2,
        ),
        Figure(
            name=f"{machine}: jobs out of memory beside others",
            spread=_exactly(ooms_pct),
            target=Target(Bound.AT_MOST, 0.5),
            unit="%",
            digits=2,
        ),
        Figure(
            name=f"{machine}: jobs lost",
            spread=_exactly(lost),
            target=Target(Bound.AT_MOST, 0),
            unit="",
            digits=0,
        ),
        Figure(
            name=f"{machine}: part of what full knowledge gains",
            spread=spread([contest.share_of_gain for contest in contests]),
            target=Target(Bound.AT_LEAST, 0.0),
            unit="",
            digits=2,
        ),
    ]


def run_sizes(_arena: Arena) -> Result:
    """Let memory follow the parameters of the runs: learned by parameter, and as one number for each kind."""
    from stoker.simulator.comparison import EXCLUSIVE, ONE_NUMBER, OURS, compete
    from stoker.simulator.workload import Machine, draw_sizes

    rows: list[list[str]] = []
    figures: list[Figure] = []
    for machine in (Machine(1, 140 << 30), Machine(4, 24 << 30)):
        contests = [
            compete(draw_sizes(seed, machine), machine, (EXCLUSIVE, ONE_NUMBER, OURS))
            for seed in range(SEEDS)
        ]
        for name in contests[0].outcomes:
            outcomes = [contest.outcomes[name] for contest in contests]
            faster = spread([contest.speedup(name) for contest in contests])
            predicted = sum(outcome.predicted for outcome in outcomes)
            under = sum(outcome.underestimated for outcome in outcomes)
            rows.append(
                [
                    machine.text,
                    name,
                    f"{faster.median:.2f}× ({faster.q1:.2f} – {faster.q3:.2f})",
                    f"{sum(each.ooms for each in outcomes)} of {sum(each.jobs for each in outcomes)}",
                    f"{under} of {predicted}",
                ]
            )
        figures += _figures_of_sizes(machine.text, contests)
    return Result(
        name="sharing_sizes",
        what=f"`stoker simulate --sizes --seeds {SEEDS}`: sweeps over batch size, width and learning"
        " rate, whose memory follows the first two; the policy's own code on a simulated clock.",
        details=Table(
            (
                "machine",
                "policy",
                "faster than a GPU each",
                "out of memory",
                "too small, of predictions for new sizes",
            ),
            rows,
        ),
        figures=figures,
        commands=[f".venv/bin/stoker simulate --sizes --seeds {SEEDS} --gpus 1x140G,4x24G"],
        notes=["Nothing here is measured: a busy machine changes no figure."],
    )


def _figures_of_sizes(machine: str, contests: list[Comparison]) -> list[Figure]:
    ours = [contest.outcomes["stoker"] for contest in contests]
    predicted = sum(outcome.predicted for outcome in ours)
    under_pct = 100 * sum(outcome.underestimated for outcome in ours) / predicted
    return [
        Figure(
            name=f"{machine}: predictions for sizes not seen before that were too small",
            spread=_exactly(under_pct),
            target=Target(Bound.AT_MOST, 1),
            unit="%",
            digits=2,
        ),
        Figure(
            name=f"{machine}: jobs lost",
            spread=_exactly(float(sum(outcome.lost for outcome in ours))),
            target=Target(Bound.AT_MOST, 0),
            unit="",
            digits=0,
        ),
    ]


def _exactly(value: float) -> Spread:
    return spread([value])
