"""Importance of parameters; the library is optional, so what needs it is tested where it is installed."""

from __future__ import annotations

import sys

import pytest

from stoker.errors import NotFoundError, StokerError
from stoker.sweep_results.importance import measure_importance
from stoker.sweep_results.run_record import RunRecord

RUNS = [
    RunRecord(
        dir="/r",
        id=f"{lr}-{opt}-{seed}",
        params={"lr": lr, "opt": opt, "seed": seed, "epochs": 3},
        metrics={"loss": 10 * lr + (opt == "sgd") + seed / 1000},
        facts={"state": "done"},
    )
    for lr in (0.1, 0.2, 0.4)
    for opt in ("adam", "sgd")
    for seed in (0, 1)
]


def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.ensemble", "sklearn.inspection"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(StokerError, match="pip install scikit-learn"):
        measure_importance(RUNS, "loss")


def test_the_parameters_are_ranked_and_runs_that_failed_do_not_count() -> None:
    pytest.importorskip("sklearn")
    failed = RunRecord(
        dir="/r",
        id="bad",
        params={"lr": 0.1, "opt": "adam", "seed": 9},
        metrics={"loss": 1e9},
        facts={"state": "failed"},
    )

    table = measure_importance([*RUNS, failed], "loss")

    assert [row[0] for row in table.rows] == ["lr", "opt", "seed"]
    shares = [row[1] for row in table.rows]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] > 0.5 > shares[1] > shares[2]


def test_too_few_runs_are_refused() -> None:
    pytest.importorskip("sklearn")

    with pytest.raises(NotFoundError, match=r"needs 8 runs .* value of loss, not 7"):
        measure_importance(RUNS[:7], "loss")
