"""Runs that did not succeed are listed, but count neither in means nor as the best."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.errors import NotFoundError
from stoker.sweep_results.results import Results
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import aggregate, describe_left_out, make_table


def run(seed: int, state: str | None, loss: float | None = None, lr: float = 0.1) -> RunRecord:
    facts: dict[str, Any] = {} if state is None else {"state": state}
    metrics = {} if loss is None else {"loss": loss}
    return RunRecord(
        dir=f"/r/{seed}",
        id=f"seed={seed}",
        params={"lr": lr, "seed": seed},
        metrics=metrics,
        facts=facts,
    )


def test_means_leave_out_runs_that_did_not_succeed() -> None:
    records = [run(0, "done", 1.0), run(1, "failed", 9.0), run(2, "done", 3.0)]

    table = aggregate(records, ["seed"])

    assert table.columns == ["loss", "runs", "missing"]
    [[stat, runs, missing]] = table.rows
    assert (stat.mean, stat.n, runs, missing) == (2.0, 2, 3, 1)


@pytest.mark.parametrize("state", ["failed", "killed", "lost", "skipped", "waiting"])
def test_the_best_run_is_one_that_succeeded(state: str) -> None:
    records = [run(0, "done", 1.0), run(1, state, 5.0)]

    with pytest.warns(UserWarning, match=f"seed=1 has a better loss but is {state}") as warned:
        assert Results(records).best("loss", "maximize").id == "seed=0"
    assert warned[0].filename == __file__
    assert Results(records).best("loss", "minimize").id == "seed=0"  # it changes nothing: no word


def test_runs_of_unknown_state_and_running_ones_count() -> None:
    records = [run(0, None, 1.0), run(1, "running", 3.0)]

    assert Results(records).best("loss", "maximize").id == "seed=1"
    assert aggregate(records, ["seed"]).rows[0][1:] == [2, 0]


def test_without_a_success_there_is_no_best_and_the_error_says_why() -> None:
    with pytest.raises(NotFoundError, match=r"no run has a value of loss \(left out: 2 failed\)"):
        Results([run(0, "failed", 1.0), run(1, "failed", 2.0)]).best("loss")


def test_left_out_runs_are_counted_by_state() -> None:
    records = [run(0, "failed", 1.0), run(1, "lost"), run(2, "failed"), run(3, "done")]

    assert describe_left_out(records) == "2 failed, 1 lost"
    assert describe_left_out(records[3:]) is None
    assert repr(Results(records)) == "<Results: 4 runs (2 failed, 1 lost)>"


def test_a_table_that_lists_a_run_that_did_not_succeed_has_a_column_of_states() -> None:
    records = [run(0, "failed", 1.0), run(1, "done", 2.0), run(2, "done", 3.0)]

    assert make_table(records[:2]).columns == ["seed", "loss", "state"]
    assert make_table(records[:2]).rows == [[0, 1.0, "failed"], [1, 2.0, "done"]]
    assert make_table(records[1:]).columns == ["seed", "loss"]
    assert make_table(records, ["loss"]).columns == ["loss"]


def test_runs_without_parameters_are_listed_by_name_and_state() -> None:
    bare = RunRecord(dir="/r/run-1", id="run-1", params={}, facts={"state": "done"})
    alone = RunRecord(dir="/r/run-2", id="run-2", params={"lr": 0.1})

    assert make_table([bare]).columns == ["run", "state"]
    assert make_table([bare]).rows == [["run-1", "done"]]
    assert make_table([alone]).columns == ["lr"]
    assert make_table([alone]).rows == [[0.1]]
