"""The simulator: what it does with the policy, and what the policy comes to there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.simulator.comparison import (
    EXCLUSIVE,
    GPULIMIT,
    ONE_NUMBER,
    OURS,
    PERFECT,
    compete,
    lower_bound_s,
)
from stoker.simulator.simulation import Simulation
from stoker.simulator.workload import Machine, Work, draw, draw_sizes, read_trace, saturating_share

GIB = 1 << 30
SMALL = Machine(4, 24 * GIB)


def work(seconds: float = 600.0, held: int = 5 * GIB, sm: float = 0.2, kind: str = "k") -> Work:
    return Work(arrival_s=0.0, duration_s=seconds, memory=((0.0, held),), sm=sm, kind=kind)


def test_alone_a_job_takes_as_long_as_it_takes() -> None:
    assert Simulation([work(seconds=600.0)], SMALL, OURS).run().makespan_s == pytest.approx(600.0)


def test_forty_small_runs_are_tried_one_to_a_gpu_and_then_share() -> None:
    contest = compete([work() for _ in range(40)], SMALL)
    alone, ours = contest.outcomes[EXCLUSIVE.name], contest.outcomes[OURS.name]
    assert alone.makespan_s == pytest.approx(10 * 600.0)
    assert ours.makespan_s < 0.45 * alone.makespan_s
    assert (ours.ooms, ours.lost) == (0, 0)


def test_jobs_that_fill_a_gpu_lose_nothing() -> None:
    contest = compete([work(sm=1.0) for _ in range(40)], SMALL)
    assert contest.speedup(OURS.name) >= 0.97


def test_who_lies_about_memory_recovers_where_gpulimits_rule_loses_it() -> None:
    grows = Work(
        arrival_s=0.0, duration_s=900.0, memory=((0.0, GIB), (0.5, 11 * GIB)), sm=0.1, kind="k"
    )
    honest = [work(seconds=300.0, held=2 * GIB, sm=0.1) for _ in range(8)]
    works = [*honest, *[grows] * 12]
    ours = Simulation(works, SMALL, OURS).run()
    theirs = Simulation(works, SMALL, GPULIMIT).run()
    assert ours.lost == 0
    assert theirs.lost > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_random_sweeps_are_done_sooner_and_near_the_least_time(seed: int) -> None:
    works = draw(seed, SMALL)
    contest = compete(works, SMALL, (EXCLUSIVE, OURS, PERFECT))
    assert saturating_share(works) >= 0.25
    assert contest.speedup(OURS.name) >= 1.5
    assert contest.over_bound(OURS.name) <= 1.4
    assert contest.outcomes[OURS.name].lost == 0
    assert 0.5 < contest.share_of_gain <= 1.1


def test_the_same_seed_is_the_same_work() -> None:
    assert draw(7, SMALL) == draw(7, SMALL) != draw(8, SMALL)


def test_no_policy_beats_the_lower_bound() -> None:
    works = [work(seconds=100.0, held=12 * GIB, sm=0.5) for _ in range(8)]
    assert lower_bound_s(works, SMALL) == pytest.approx(100.0)
    assert Simulation(works, SMALL, PERFECT).run().makespan_s >= 100.0


def test_a_trace_is_read_with_its_memory_over_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,duration_s,memory,sm,kind\n0,60,5G,0.5,a\n9,120,0:1G;0.5:2G,1,b\n")
    first, second = read_trace(str(path))
    assert (first.kind, first.peak_bytes) == ("a", 5 * GIB)
    assert second.memory == ((0.0, GIB), (0.5, 2 * GIB))
    assert second.byte_seconds == pytest.approx(180.0 * GIB)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("x,60,5G,0.5", "line 2: could not convert"),
        ("0,60,lots,0.5", "line 2: 'lots' is not an amount"),
        ("0,0,5G,0.5", "line 2: times must be seconds"),
        ("0,60,5G,1.5", "and sm a share from 0 to 1"),
        ("0,60,0.5:1G;0.2:2G,0.5", "must rise from 0"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"arrival_s,duration_s,memory,sm\n{row}\n")
    with pytest.raises(UsageError, match=says):
        read_trace(str(path))


def test_a_trace_without_a_column_or_a_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,duration_s,memory\n")
    with pytest.raises(UsageError, match="no column sm"):
        read_trace(str(path))
    path.write_text("arrival_s,duration_s,memory,sm\n")
    with pytest.raises(UsageError, match="contains no job"):
        read_trace(str(path))


def test_memory_learned_by_parameter_beats_one_number_for_a_kind() -> None:
    machine = Machine(1, 140 * GIB)
    contest = compete(draw_sizes(1, machine), machine, (EXCLUSIVE, ONE_NUMBER, OURS))
    ours, one_number = contest.outcomes[OURS.name], contest.outcomes[ONE_NUMBER.name]
    assert ours.makespan_s < 0.8 * one_number.makespan_s
    assert ours.lost == 0
    assert ours.learned > 20
    assert ours.too_small <= 0.01 * ours.learned


@pytest.mark.parametrize("machine", [SMALL, Machine(1, 140 * GIB)])
def test_less_than_one_in_a_hundred_predictions_for_new_sizes_is_too_small(
    machine: Machine,
) -> None:
    outcomes = [Simulation(draw_sizes(seed, machine), machine, OURS).run() for seed in (1, 2)]
    predicted = sum(outcome.predicted for outcome in outcomes)
    assert predicted > 30
    assert sum(outcome.underestimated for outcome in outcomes) < 0.01 * predicted
