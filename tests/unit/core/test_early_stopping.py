"""Rules that stop runs early, beside the programs that they follow.

`wandb_stop_runs.json` holds random sweeps with the runs that W&B's own code stops. They were computed by
`stop_runs` of the package sweeps 0.2.0 from PyPI.
"""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

import pytest

from stoker.core.early_stopping import EarlyStopping, StopRule, bands_of

_RECORD = os.path.join(os.path.dirname(__file__), "wandb_stop_runs.json")
with open(_RECORD, encoding="utf-8") as file:
    WANDB: list[dict[str, Any]] = json.load(file)


def _stopping(rule: StopRule, *curves: list[float], maximize: bool = False) -> EarlyStopping:
    stopping = EarlyStopping(rule, maximize=maximize)
    for run, curve in enumerate(curves):
        for value in curve:
            stopping.report(str(run), value)
    return stopping


@pytest.mark.parametrize("number", range(len(WANDB)))
def test_hyperband_stops_the_runs_that_wandb_stops(number: int) -> None:
    case = WANDB[number]
    rule = StopRule(kind="hyperband", **case["rule"])
    curves = [[float(value) for value in values] for _state, values in case["runs"]]
    stopping = _stopping(rule, *curves, maximize=case["goal"] == "maximize")

    running = [run for run, (state, _values) in enumerate(case["runs"]) if state == "running"]
    assert [run for run in running if stopping.judge(str(run))] == case["stopped"]


def test_the_recorded_sweeps_stop_some_runs_and_not_others() -> None:
    stopped = sum(len(case["stopped"]) for case in WANDB)
    running = sum(state == "running" for case in WANDB for state, _values in case["runs"])
    assert running / 5 < stopped < running * 4 / 5


def test_bands_count_back_from_the_last_iteration_or_up_from_the_first() -> None:
    assert bands_of(StopRule(kind="hyperband", max_iter=27, s=2)) == [3, 9]
    assert bands_of(StopRule(kind="hyperband", max_iter=5, s=9, eta=2)) == [1, 2]
    assert bands_of(StopRule(kind="hyperband", min_iter=2, eta=2.5))[:4] == [2, 5, 12, 31]


def test_asha_decides_as_the_pruner_of_optuna_does() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = random.Random(3)
    for _sweep in range(10):
        eta, first = rng.choice([2, 3, 4]), rng.choice([1, 2])
        pruner = optuna.pruners.SuccessiveHalvingPruner(first, eta, 0)
        study = optuna.create_study(pruner=pruner, direction="minimize")
        stopping = EarlyStopping(StopRule(kind="asha", min_iter=first, eta=eta), maximize=False)
        trials = [study.ask() for _trial in range(9)]
        live = dict.fromkeys(range(9), 10.0)
        for _report in range(120):
            if not live:
                break
            run = rng.choice(list(live))
            live[run] = rng.random()  # up and down: the value at the rung counts, not the best
            trials[run].report(
                live[run], len(trials[run].storage.get_trial(run).intermediate_values) + 1
            )
            stopping.report(str(run), live[run])
            wanted = trials[run].should_prune()
            assert (stopping.judge(str(run)) is not None) == wanted
            if wanted:
                study.tell(trials[run], state=optuna.trial.TrialState.PRUNED)
                del live[run]


def test_the_median_rule_decides_as_the_pruner_of_optuna_does() -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = random.Random(4)
    decisions: list[bool] = []
    for _sweep in range(10):
        curves = [[rng.random() for _step in range(8)] for _run in range(6)]
        study = optuna.create_study(
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5), direction="minimize"
        )
        stopping = _stopping(StopRule(kind="median", min_runs=5), *curves[:5])
        for curve in curves[:5]:
            ended = study.ask()
            for step, value in enumerate(curve):
                ended.report(value, step)
            study.tell(ended, curve[-1])
        trial = study.ask()
        for step, value in enumerate(curves[5]):
            trial.report(value, step)
            stopping.report("5", value)
            decisions.append(trial.should_prune())
            assert (stopping.judge("5") is not None) == decisions[-1]
            if decisions[-1]:
                break
    assert {False, True} == set(decisions)


def test_asha_judges_a_run_once_at_each_rung() -> None:
    stopping = _stopping(StopRule(kind="asha", min_iter=1, eta=2), [5.0])
    assert stopping.judge("0") is None

    stopping.report("1", 1.0)
    stopping.report("2", 2.0)

    assert stopping.judge("0") is None, "it has passed the rung before better runs came"
    assert stopping.judge("2") == "2 is worse than the best 1/2 of the runs at iteration 1 (1)"
    stopping.report("0", 5.0)
    stopping.report("1", 0.5)
    assert stopping.judge("0") is not None


def test_every_rung_counts_when_many_reports_come_at_once() -> None:
    stopping = _stopping(StopRule(kind="asha", min_iter=1, eta=2), [0.01] * 9, [9.0, 0.1, 0.1])

    assert stopping.judge("0") is None
    assert "at iteration 1 (0.01)" in (stopping.judge("1") or "")


def test_a_run_that_was_going_on_before_is_not_judged_for_earlier_rungs() -> None:
    stopping = _stopping(StopRule(kind="asha", min_iter=1, eta=2), [1.0], [9.0])

    stopping.admit("1")

    assert stopping.judge("1") is None


def test_asha_has_no_rung_at_the_last_iteration() -> None:
    stopping = _stopping(StopRule(kind="asha", min_iter=1, eta=3, max_iter=3), [1.0], [1.0, 2, 3])
    assert stopping.judge("1") is None


def test_the_median_rule_waits_for_enough_runs_and_iterations() -> None:
    rule = StopRule(kind="median", min_iter=2, min_runs=3)
    stopping = _stopping(rule, [1.0, 1.0], [2.0, 2.0], [9.0, 9.0])
    assert stopping.judge("2") is None, "only two others"

    stopping.report("3", 8.0)
    stopping.report("3", 8.0)

    assert stopping.judge("3") == "8 is worse than the median of the runs at iteration 2 (2)"
    assert stopping.judge("2") is None, "it was judged there before"
    assert stopping.judge("1") is None
    stopping.report("4", 99.0)
    assert stopping.judge("4") is None, "before the first iteration that counts"


def test_greater_is_better_if_so_asked() -> None:
    rule = StopRule(kind="median", min_runs=1)
    stopping = _stopping(rule, [0.9], [0.1], maximize=True)

    assert stopping.judge("0") is None
    assert stopping.judge("1") == "0.1 is worse than the median of the runs at iteration 1 (0.9)"


@pytest.mark.parametrize("kind", ["hyperband", "asha", "median"])
def test_values_that_are_no_numbers_are_no_iterations(kind: Any) -> None:
    rule = StopRule(kind=kind, min_iter=1, min_runs=1)
    stopping = _stopping(rule, [math.nan] * 9, [math.inf] * 9, [1.0])

    assert [stopping.judge(run) for run in ("0", "1", "2", "unknown")] == [None] * 4


def test_what_a_retry_reports_again_replaces_what_was_reported_before() -> None:
    stopping = _stopping(StopRule(kind="asha", min_iter=1, eta=2), [1.0, 1.0], [0.5, 0.5])
    assert stopping.judge("0") is not None
    stopping.cut("0", 0)
    assert stopping.judge("0") is None

    stopping.report("0", 0.1)

    assert stopping.judge("0") is None
