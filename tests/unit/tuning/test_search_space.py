"""The space of a sweep as parameters of Optuna, there and back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import optuna
import pytest

from stoker.tuning.search_space import SearchSpace
from unit.tuning.made import make_sweep

optuna.logging.set_verbosity(optuna.logging.ERROR)


def _space(tmp_path: Path, parameters: Any, **more: Any) -> SearchSpace:
    return SearchSpace(make_sweep(tmp_path, parameters, **more).space)


def _points(space: SearchSpace, count: int = 40) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return points with the values of Optuna that led to them."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    found = []
    for _trial in range(count):
        trial = study.ask()
        point = space.choose(trial)
        found.append(({name: cell.value for name, cell in point.items()}, trial.params))
    return found


EVERY = {
    "uniform": {"min": 0.5, "max": 2.5},
    "whole": {"min": 1, "max": 6},
    "log": {"min": 1e-5, "max": 1e-1, "distribution": "log_uniform_values"},
    "exponents": {"min": -3.0, "max": 0.0, "distribution": "log_uniform"},
    "inverse": {"min": 1.0, "max": 2.0, "distribution": "inv_log_uniform"},
    "inverse_values": {"min": 0.1, "max": 10.0, "distribution": "inv_log_uniform_values"},
    "normal": {"mu": 5.0, "sigma": 2.0},
    "log_normal": {"mu": 0.0, "sigma": 1.0, "distribution": "log_normal"},
    "rounded": {"min": 0.0, "max": 1.0, "q": 0.25},
    "rounded_log": {"min": 1, "max": 512, "q": 8, "distribution": "q_log_uniform_values"},
    "words": ["adam", "sgd"],
    "mixed": {"values": [1, "1", None, True, [64, 64]]},
    "many": "range(0, 400, 4)",
    "likely": {"values": ["a", "b", "c"], "probabilities": [0.8, 0.1, 0.1]},
    "constant": 3,
    "zip": {"p": [1, 2], "q": ["x", "y"]},
}


def test_every_kind_of_parameter_is_chosen_inside_its_limits(tmp_path: Path) -> None:
    points = [point for point, _params in _points(_space(tmp_path, EVERY, fixed={"epochs": 9}))]

    def seen(name: str) -> list[Any]:
        return [point[name] for point in points]

    assert all(0.5 <= value <= 2.5 for value in seen("uniform"))
    assert set(seen("whole")) == set(range(1, 7))
    assert all(1e-5 <= value <= 1e-1 for value in seen("log"))
    assert min(seen("log")) < 1e-4
    assert all(0.049 < value <= 1 for value in seen("exponents"))
    assert all(0.1 <= value <= 10 for value in seen("inverse_values"))
    assert set(seen("rounded")) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert all(value % 8 == 0 for value in seen("rounded_log"))
    assert set(seen("words")) == {"adam", "sgd"}
    assert {repr(value) for value in seen("mixed")} == {"1", "'1'", "None", "True", "[64, 64]"}
    assert all(value in range(0, 400, 4) for value in seen("many"))
    assert seen("likely").count("a") > 20
    assert set(seen("constant")) == {3}
    assert set(seen("epochs")) == {9}
    assert {(point["p"], point["q"]) for point in points} == {(1, "x"), (2, "y")}


def test_a_run_leads_back_to_the_values_of_optuna(tmp_path: Path) -> None:
    space = _space(tmp_path, EVERY)
    for point, params in _points(space):
        encoded = space.encode(point)
        assert encoded is not None
        values, distributions = encoded
        assert set(values) == set(params) == set(distributions)
        optuna.trial.create_trial(params=values, distributions=distributions, value=0.0)
        again = {name: cell.value for name, cell in space.choose(_Fixed(values)).items()}
        assert _close(again, point)


class _Fixed:
    """Chooses the values that it was given."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def suggest_float(self, name: str, *_limits: Any, **_more: Any) -> Any:
        return self._values[name]

    suggest_int = suggest_categorical = suggest_float


def _close(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return set(one) == set(other) and all(
        abs(value - other[name]) <= 1e-6 * max(1.0, abs(value))
        if isinstance(value, float)
        else value == other[name] and type(value) is type(other[name])
        for name, value in one.items()
    )


def test_conditional_parameters_are_chosen_where_their_condition_holds(tmp_path: Path) -> None:
    space = _space(
        tmp_path,
        {"opt": ["sgd", "adam"], "momentum": {"min": 0.0, "max": 1.0, "when": "opt == 'sgd'"}},
    )
    for point, params in _points(space):
        assert ("momentum" in point) == (point["opt"] == "sgd") == ("momentum" in params)
        encoded = space.encode(point)
        assert encoded is not None
        assert encoded[0] == params


def test_blocks_share_what_means_the_same_in_all_of_them(tmp_path: Path) -> None:
    lr = {"min": 0.0, "max": 1.0}
    blocks = [{"net": "a", "lr": lr, "k": [1, 2]}, {"net": "b", "lr": lr, "k": [3, 4]}]
    space = _space(tmp_path, blocks)
    seen = set()
    for point, params in _points(space):
        block = params["(block)"]
        seen.add(block)
        assert point["net"] == "ab"[block]
        assert set(params) == {"(block)", "lr", f"k (block {block + 1})"}
        assert space.encode(point) == (params, space.encode(point)[1])  # type: ignore[index]
    assert seen == {0, 1}


@pytest.mark.parametrize(
    "params",
    [{}, {"x": 2.0}, {"x": "a"}, {"x": 0.5, "y": 1}, {"x": None}],
)
def test_a_run_of_another_space_is_not_taken(tmp_path: Path, params: dict[str, Any]) -> None:
    assert _space(tmp_path, {"x": {"min": 0.0, "max": 1.0}}).encode(params) is None


def test_tpe_learns_in_a_space_of_every_kind(tmp_path: Path) -> None:
    space = _space(tmp_path, EVERY)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, constant_liar=True))
    rng = random.Random(1)
    for _trial in range(30):
        trial = study.ask()
        space.choose(trial)
        study.tell(trial, rng.random())
    assert len(study.trials) == 30
