from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.sweeps.count import bound, count_runs
from stoker.sweeps.definition import read_definition
from stoker.sweeps.expand import Permutation
from stoker.sweeps.plan import plan_sweep
from stoker.sweeps.tree import as_tree

NAMES = st.sampled_from(["a", "b", "c", "d.e", "f-g"])
SCALARS = st.integers(-3, 3) | st.sampled_from(["x", "1", "", "True"]) | st.booleans() | st.none()
PRODUCTS = st.dictionaries(NAMES, st.lists(SCALARS, min_size=1, max_size=4), max_size=4)


def expand(**definition: Any) -> list[dict[str, Any]]:
    sweep = plan_sweep({"command": "x {args}", **definition})
    return [run.params for run in sweep]


@given(
    st.lists(PRODUCTS, min_size=1, max_size=3),
    st.none() | st.integers(1, 3),
    st.sampled_from(["grid", "random"]),
    st.integers(1, 30),
)
def test_the_number_of_distinct_runs_equals_the_count(
    blocks: list[Any], repeats: int | None, method: str, samples: int
) -> None:
    definition: dict[str, Any] = {"command": "x {args}", "parameters": blocks, "method": method}
    if repeats is not None:
        definition["repeats"] = repeats
    if method == "random":
        definition["samples"] = samples
    sweep = plan_sweep(definition)
    runs = list(sweep)
    checked = read_definition(as_tree(definition))

    assert len(runs) == sweep.count == count_runs(checked.space)[0] <= bound(checked.space).runs
    assert len({run.identity for run in runs}) == len(runs)
    assert len({run.dir for run in runs}) == len(runs)
    assert [run.index for run in runs] == list(range(len(runs)))
    if bound(checked.space).exact:
        assert bound(checked.space).runs == len(runs)


@given(PRODUCTS)
def test_a_product_is_the_product_in_order(product: dict[str, list[Any]]) -> None:
    import itertools

    distinct = {
        name: [v for n, v in enumerate(values) if all(repr(v) != repr(w) for w in values[:n])]
        for name, values in product.items()
    }

    found = expand(parameters=product)

    assert repr(found) == repr(
        [dict(zip(distinct, row, strict=True)) for row in itertools.product(*distinct.values())]
    )


@given(st.integers(1, 3000), st.text(max_size=5))
@settings(max_examples=50)
def test_a_permutation_has_each_number_once(size: int, seed: str) -> None:
    assert sorted(Permutation(size, seed)) == list(range(size))


def test_a_permutation_of_a_huge_range_starts_at_once() -> None:
    first = next(iter(Permutation(10**18, "0")))

    assert 0 <= first < 10**18


def test_a_condition_decides_whether_a_run_has_a_parameter() -> None:
    found = expand(
        parameters={
            "momentum": {"values": [0.5, 0.9], "when": "opt == 'sgd'"},
            "opt": ["sgd", "adam"],
            "nesterov": {"values": [True, False], "when": "momentum > 0.6"},
        }
    )

    assert found == [
        {"opt": "sgd", "momentum": 0.5},
        {"opt": "sgd", "momentum": 0.9, "nesterov": True},
        {"opt": "sgd", "momentum": 0.9, "nesterov": False},
        {"opt": "adam"},
    ]


def test_a_nested_condition_applies_to_all_parameters_below() -> None:
    found = expand(
        parameters={
            "opt": ["sgd", "adam"],
            "sgd": {
                "when": "opt == 'sgd'",
                "parameters": {"m": [1, 2], "n": {"values": [3], "when": "sgd.m == 2"}},
            },
        }
    )

    assert found == [
        {"opt": "sgd", "sgd.m": 1},
        {"opt": "sgd", "sgd.m": 2, "sgd.n": 3},
        {"opt": "adam"},
    ]


def test_draws_of_a_grid_are_taken_at_every_point() -> None:
    found = expand(
        parameters={"lr": "loguniform(1e-5, 1e-1)", "opt": ["a", "b"], "w": {"min": 1, "max": 9}},
        samples=4,
    )

    assert [each["opt"] for each in found] == ["a"] * 4 + ["b"] * 4
    assert len({each["lr"] for each in found}) == 8
    assert all(isinstance(each["w"], int) and 1 <= each["w"] <= 9 for each in found)


def test_more_values_or_samples_keep_the_earlier_draws() -> None:
    def draws(values: list[str], samples: int) -> list[dict[str, Any]]:
        return expand(parameters={"lr": "uniform(0, 1)", "opt": values}, samples=samples)

    few, more = draws(["a"], 2), draws(["b", "a"], 5)

    assert all(each in more for each in few)
    assert (
        expand(parameters={"lr": "uniform(0, 1)"}, method="random", samples=3)
        == (expand(parameters={"lr": "uniform(0, 1)"}, method="random", samples=9)[:3])
    )


def test_the_seed_decides_the_draws() -> None:
    def draws(seed: int) -> list[dict[str, Any]]:
        return expand(parameters={"lr": "normal(0, 1)"}, method="random", samples=5, seed=seed)

    assert draws(0) == draws(0) != draws(1)
    assert draws(0)[0]["lr"] == pytest.approx(draws(0)[0]["lr"])


def test_a_condition_may_use_a_drawn_parameter() -> None:
    found = expand(
        parameters={"lr": "uniform(0, 1)", "warmup": {"values": [1, 2], "when": "lr > 0.5"}},
        samples=10,
    )

    assert len({each["lr"] for each in found}) == 10
    assert all(("warmup" in each) == (each["lr"] > 0.5) for each in found)


def test_a_discrete_space_is_sampled_without_replacement() -> None:
    parameters = {"a": list(range(5)), "b": list(range(5))}

    some = expand(parameters=parameters, method="random", samples=10)
    every = expand(parameters=parameters, method="random", samples=25)

    assert len({(each["a"], each["b"]) for each in some}) == 10
    assert some == every[:10]
    assert sorted((each["a"], each["b"]) for each in every) == [
        (a, b) for a in range(5) for b in range(5)
    ]
    assert [each["a"] for each in every] != sorted(each["a"] for each in every)


def test_random_without_samples_takes_a_whole_grid_in_another_order() -> None:
    values = {"a": list(range(10)), "b": list(range(10))}
    grid = expand(parameters=values)
    shuffled = expand(parameters=values, method="random")
    assert shuffled != grid
    assert sorted(shuffled, key=str) == sorted(grid, key=str)
    assert expand(parameters=values, method="random", seed=1) != shuffled
    five = expand(parameters=values, method="random", samples=5)
    assert five == shuffled[:5]


def test_random_without_samples_drops_excluded_and_duplicate_runs() -> None:
    sweep = plan_sweep(
        {
            "command": "x {args}",
            "method": "random",
            "parameters": [{"a": [1, 2, 3]}, {"a": [3, 4]}],
            "exclude": ["a == 2"],
        }
    )
    assert sorted(run.params["a"] for run in sweep) == [1, 3, 4]
    assert sweep.count == 3
    assert sweep.notes == ["1 run was dropped because another run is the same"]


def test_more_samples_than_runs_gives_a_note() -> None:
    sweep = plan_sweep(
        {
            "command": "x {args}",
            "parameters": {"a": [1, 2], "b": {"min": 1, "max": 2}},
            "method": "random",
            "samples": 50,
        }
    )

    assert sweep.count == 4
    assert sweep.notes == ["only 4 different runs exist, but 50 samples were requested"]


def test_a_huge_discrete_space_can_be_sampled() -> None:
    words = [f"p{n}=range(1000)" for n in range(6)]

    sweep = plan_sweep({"command": "x {args}", "method": "random", "samples": 5}, words)

    assert sweep.count == len(list(sweep)) == 5


def test_samples_of_unions_come_from_all_of_them() -> None:
    found = expand(
        parameters=[{"m": "A", "x": "uniform(0,1)"}, {"m": "B", "y": [1, 2, 3]}],
        method="random",
        samples=40,
    )

    kinds = {each["m"] for each in found}
    assert kinds == {"A", "B"}
    assert all(("x" in each) == (each["m"] == "A") for each in found)


def test_repeats_come_last_and_count_from_zero() -> None:
    assert expand(parameters={"a": [1, 2]}, repeats=2) == [
        {"a": 1, "seed": 0},
        {"a": 1, "seed": 1},
        {"a": 2, "seed": 0},
        {"a": 2, "seed": 1},
    ]


def test_draws_are_within_the_limits() -> None:
    shapes: dict[str, tuple[dict[str, Any], float, float]] = {
        "uniform": ({"min": 1, "max": 2.5}, 1, 2.5),
        "q_uniform": ({"min": 0, "max": 1.0, "q": 0.1}, 0, 1),
        "int_uniform": ({"min": -1, "max": 1}, -1, 1),
        "log_uniform": ({"min": -2, "max": 0}, math.exp(-2), 1),
        "log_uniform_values": ({"min": 0.1, "max": 10}, 0.1, 10),
        "inv_log_uniform": ({"min": 0, "max": 2}, math.exp(-2), 1),
        "inv_log_uniform_values": ({"min": 0.1, "max": 10}, 0.0999999, 10.0000001),
        "q_log_uniform_values": ({"min": 1, "max": 64, "q": 4}, 0, 64),
        "normal": ({"mu": 5, "sigma": 0}, 5, 5),
        "q_normal": ({"mu": 5, "sigma": 1, "q": 2}, -1, 12),
        "log_normal": ({"mu": 0, "sigma": 1}, 0, 1000),
    }
    for shape, (arguments, low, high) in shapes.items():
        entry = {"distribution": shape, **arguments}
        found = expand(parameters={"x": entry, "i": "range(40)"}, method="random", samples=40)
        assert all(low <= each["x"] <= high for each in found), shape
        if "q" in arguments and arguments["q"] == 0.1:
            assert all(each["x"] == round(each["x"], 1) for each in found)


def test_draws_follow_their_distribution() -> None:
    found = expand(parameters={"x": "uniform(0, 1)"}, method="random", samples=2000)
    values = sorted(each["x"] for each in found)

    assert abs(sum(values) / 2000 - 0.5) < 0.03
    assert values[0] < 0.01
    assert values[-1] > 0.99
