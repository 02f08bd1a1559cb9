from __future__ import annotations

import pytest

from stoker.core.lifecycle import State
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.plan import Run, plan_sweep
from stoker.wire import SweepRun


@pytest.fixture
def runs() -> list[Run]:
    """Return five runs, numbered from 0."""
    return list(plan_sweep({"command": "x {i}"}, ["i=range(5)"]))


def known(run: Run, state: State, job: int = 1, **more: float) -> SweepRun:
    return SweepRun(identity=run.identity, dir=run.dir, job=job, state=state, **more)  # type: ignore[arg-type]


def chosen(history: EarlierRuns, runs: list[Run], rerun: Rerun) -> list[int]:
    return [run.index for run in history.choose(runs, rerun)]


def test_the_queued_runs_depend_on_earlier_runs(runs: list[Run]) -> None:
    history = EarlierRuns(
        [
            known(runs[0], State.DONE),
            known(runs[1], State.FAILED),
            known(runs[2], State.RUNNING),
            known(runs[3], State.LOST),
        ]
    )

    assert chosen(history, runs, Rerun.UNDONE) == [1, 3, 4]
    assert chosen(history, runs, Rerun.FAILED) == [1, 3]
    assert chosen(history, runs, Rerun.NONE) == [4]
    assert chosen(history, runs, Rerun.ALL) == [0, 1, 3, 4]


def test_a_success_counts_despite_other_attempts(runs: list[Run]) -> None:
    history = EarlierRuns(
        [
            known(runs[0], State.FAILED, 1),
            known(runs[0], State.DONE, 2),
            known(runs[0], State.KILLED, 3),
        ]
    )

    assert chosen(history, runs[:1], Rerun.UNDONE) == []
    assert chosen(history, runs[:1], Rerun.FAILED) == []


def test_without_earlier_runs_all_are_queued_and_none_failed(runs: list[Run]) -> None:
    assert chosen(EarlierRuns(), runs, Rerun.UNDONE) == [0, 1, 2, 3, 4]
    assert chosen(EarlierRuns(), runs, Rerun.NONE) == [0, 1, 2, 3, 4]
    assert chosen(EarlierRuns(), runs, Rerun.FAILED) == []


def test_the_mean_time_is_that_of_successes(runs: list[Run]) -> None:
    assert EarlierRuns().mean_s is None
    history = EarlierRuns(
        [
            known(runs[0], State.DONE, started_at=10.0, ended_at=20.0),
            known(runs[1], State.DONE, started_at=10.0, ended_at=40.0),
            known(runs[2], State.FAILED, started_at=0.0, ended_at=900.0),
        ]
    )
    assert history.mean_s == 20.0


def test_skipped_runs_are_described_with_the_way_to_run_them(runs: list[Run]) -> None:
    found = [
        known(runs[0], State.DONE),
        known(runs[1], State.FAILED),
        known(runs[2], State.RUNNING),
    ]
    history = EarlierRuns(found, {runs[3].command.encode()})

    assert chosen(history, runs, Rerun.NONE) == [4]
    assert history.describe_skipped(5) == (
        "2 of 5 runs are already done (--rerun all repeats them),"
        " 1 of 5 runs are waiting or running,"
        " 1 of 5 runs failed before (--rerun failed repeats them)"
    )
    assert chosen(history, runs, Rerun.ALL) == [0, 1, 3, 4]
    assert history.describe_skipped(5) == "1 of 5 runs are waiting or running"
    assert chosen(EarlierRuns(), runs, Rerun.UNDONE) == [0, 1, 2, 3, 4]
    assert EarlierRuns().describe_skipped(5) == ""
