"""Runs that did not succeed are listed, but count neither in means nor as the best."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stoker.errors import NotFoundError
from stoker.sweep_results.formats import to_text
from stoker.sweep_results.results import Results
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import (
    Stat,
    Table,
    aggregate,
    describe_left_out,
    describe_reported,
    explain_unreported,
    make_table,
    shorten_ids,
    sort_by_goal,
    sort_means,
)


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
    [[stat, _runs, missing]] = aggregate(records, ["seed"], failed=True).rows
    assert (stat.n, missing) == (3, 0)
    [group] = Results(records).agg("loss", over="seed", failed=True)
    assert group["loss"].n == 3


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


def test_every_table_has_the_ids_and_states_of_runs_unless_columns_are_chosen() -> None:
    records = [run(0, "failed", 1.0), run(1, "done", 2.0)]

    assert make_table(records).columns == ["run", "seed", "loss", "state"]
    assert make_table(records).rows == [["seed=0", 0, 1.0, "failed"], ["seed=1", 1, 2.0, "done"]]
    assert make_table(records, ["loss"]).columns == ["loss"]
    assert make_table(records, ["run", "state"]).rows == [["seed=0", "failed"], ["seed=1", "done"]]


def test_people_see_the_hash_of_a_run_that_has_one() -> None:
    ids = ["lr=0.1,s=a-b-1234abcd", "run-0123456789abcdef", "run-1", "abcd"]

    table = shorten_ids(Table(["run", "lr"], [[each, 1] for each in ids]))

    assert [row[0] for row in table.rows] == ["1234abcd", "0123456789abcdef", "run-1", "abcd"]
    assert shorten_ids(Table(["lr"], [[1]])).rows == [[1]]


def test_the_best_runs_come_first_and_those_that_do_not_count_last() -> None:
    records = [
        run(0, "failed", 9.0),
        run(1, "done", 2.0),
        run(2, "done"),
        run(3, "running", 3.0),
        run(4, "done", math.nan),
    ]

    assert [r.params["seed"] for r in sort_by_goal(records, "loss", "maximize")] == [3, 1, 2, 4, 0]
    assert [r.params["seed"] for r in sort_by_goal(records, "loss", "minimize")] == [1, 3, 2, 4, 0]
    assert sort_by_goal(records, "other", "minimize") == records


def test_means_are_sorted_by_the_goal() -> None:
    records = [run(s, "done", loss, lr) for s, loss, lr in ((0, 2.0, 0.1), (0, 1.0, 0.2))]
    records.append(run(0, "failed", 0.0, 0.3))
    table = aggregate(records, ["seed"])

    sort_means(table, "loss", "minimize")

    assert [row[0] for row in table.rows] == [0.2, 0.1, 0.3]
    sort_means(table, "loss", "maximize")
    assert [row[0] for row in table.rows] == [0.1, 0.2, 0.3]
    sort_means(table, "other", "maximize")


@pytest.mark.parametrize(
    ("mean", "std", "written"),
    [
        (1.4999, 0.005, "1.4999 ± 0.0050 (3)"),
        (0.3795, 0.0049497, "0.3795 ± 0.0049 (3)"),
        (123.456, 12.34, "123 ± 12 (3)"),
        (4.5, 0.99999, "4.5 ± 1.0 (3)"),
        (98765.4, 1234.5, "98765 ± 1200 (3)"),
        (1e-5, 3e-7, "1e-05 ± 3e-07 (3)"),
        (1.5, 0.0, "1.5 ± 0 (3)"),
        (3e12, 2e10, "3e+12 ± 2e+10 (3)"),
        (1.23456789, None, "1.2346 (3)"),
    ],
)
def test_a_mean_has_the_digits_that_its_deviation_allows(
    mean: float, std: float | None, written: str
) -> None:
    assert to_text(Stat(mean, std, 3)) == written


def test_runs_without_varied_parameters_have_all_of_them() -> None:
    bare = RunRecord(dir="/r/run-1", id="run-1", params={}, facts={"state": "done"})
    alone = RunRecord(dir="/r/run-2", id="run-2", params={"lr": 0.1})

    assert make_table([bare]).columns == ["run", "state"]
    assert make_table([bare]).rows == [["run-1", "done"]]
    assert make_table([alone]).columns == ["run", "lr", "state"]
    assert make_table([alone]).rows == [["run-2", 0.1, None]]


def test_a_metric_that_no_ended_run_has_reported_is_told_with_those_that_were() -> None:
    ended = [run(0, "done", 0.5), run(1, "failed", 0.5)]

    assert explain_unreported(ended, "loss") is None
    assert explain_unreported([run(0, "running")], "acc") is None, "it may come"
    assert explain_unreported(ended, "val_loss") == (
        "no run has reported val_loss: they reported loss: did you mean 'loss'?"
    )
    assert explain_unreported([run(0, None)], "acc") == (
        "no run has reported acc: they reported no metric"
    )
    assert describe_reported([f"m{number}" for number in range(20)], "acc") == (
        "reported m0, m1, m2, m3, m4, m5, m6, m7 and 12 more"
    )
