"""Estimates of a run's peak memory from runs with other parameters."""

from __future__ import annotations

import random

import pytest

from stoker.core.sharing.estimate import Points, estimate, relevant
from stoker.core.sharing.parameters import CommandFacts, Params, mask, template_of

GIB = float(1 << 30)
# Measured with a small language model: memory follows batch size, and not the learning rate.
PEAKS = {8: 1.1, 16: 1.9, 64: 6.5, 256: 25.7}


def params(**values: float) -> Params:
    return tuple((name, float(value)) for name, value in sorted(values.items()))


def language_model(*rates: float) -> Points:
    pairs = zip(PEAKS.items(), rates or (0.1,) * len(PEAKS), strict=True)
    return tuple((params(bs=bs, lr=rate), gib * GIB) for (bs, gib), rate in pairs)


def test_no_runs_give_no_estimate() -> None:
    assert estimate((), params(bs=8)) is None


def test_runs_with_equal_parameters_give_their_peak() -> None:
    found = estimate(language_model(), params(bs=64, lr=0.1))
    assert found is not None
    assert (found.value / GIB, found.exact, found.runs) == (6.5, True, 1)


def test_a_parameter_without_effect_is_recognised() -> None:
    points = language_model(0.1, 0.01, 0.001, 0.3)
    assert relevant(points) == (("bs",),)
    found = estimate(points, params(bs=64, lr=5.0))
    assert found is not None
    assert (found.value / GIB, found.names) == (6.5, ("bs",))


def test_seeds_need_two_runs_to_be_recognised_as_without_effect() -> None:
    one = ((params(seed=1), 2 * GIB),)
    assert estimate(one, params(seed=99)) is None
    found = estimate((*one, (params(seed=2), 2.02 * GIB)), params(seed=99))
    assert found is not None
    assert found.value == 2.02 * GIB
    assert found.names == ()


@pytest.mark.parametrize(("bs", "real"), [(32, 3.4), (128, 12.9), (4, 0.7)])
def test_sizes_between_and_below_the_runs_are_estimated_closely(bs: int, real: float) -> None:
    found = estimate(language_model(), params(bs=bs, lr=0.1))
    assert found is not None
    assert not found.exact
    assert real <= found.upper / GIB <= 1.35 * real


def test_sizes_far_above_the_runs_are_not_estimated() -> None:
    near, far = (estimate(language_model(), params(bs=bs, lr=0.1)) for bs in (512, 1024))
    assert near is not None
    assert near.upper / GIB > 51
    assert far is None


def test_a_parameter_that_never_varied_is_not_estimated() -> None:
    points = tuple((params(bs=8, lr=rate), GIB) for rate in (0.1, 0.2, 0.3))
    assert estimate(points, params(bs=8, lr=9.0)) is not None
    assert estimate(points, params(bs=16, lr=0.1)) is None


def test_sizes_that_make_up_for_each_other_are_not_taken_to_be_without_effect() -> None:
    points = ((params(bs=16, width=512), GIB), (params(bs=64, width=128), 1.02 * GIB))
    assert estimate(points, params(bs=64, width=512)) is None


def test_a_size_is_not_taken_to_save_memory_without_two_runs_that_show_it() -> None:
    sizes = ((256, 128, 1.0), (64, 256, 1.4), (16, 512, 1.8))
    points = tuple((params(bs=bs, width=width), gib * GIB) for bs, width, gib in sizes)
    assert estimate(points, params(bs=128, width=512)) is None
    shown = (*points, (params(bs=32, width=512), 1.5 * GIB))
    found = estimate(shown, params(bs=24, width=512))
    assert found is not None
    assert found.upper >= 1.8 * GIB


def test_runs_too_small_to_show_the_effect_of_a_size_do_not_tell_of_a_large_one() -> None:
    runs = ((8, 0.500), (16, 0.503), (8, 0.501))
    points = tuple((params(bs=bs, lr=lr), gib * GIB) for lr, (bs, gib) in enumerate(runs, start=1))
    assert estimate(points, params(bs=17, lr=7)) is not None
    assert estimate(points, params(bs=256, lr=0.1)) is None


def test_a_line_over_a_product_with_a_rate_is_not_believed() -> None:
    """Measured points: by chance they lie on a line over size × width × rate."""
    runs = ((32, 0.03024, 128, 1.34), (64, 0.0252, 256, 4.07), (16, 0.00263, 128, 0.91))
    points = tuple((params(bs=b, lr=lr, width=w), gib * GIB) for b, lr, w, gib in runs)
    assert estimate(points, params(bs=128, lr=0.00076, width=128)) is None


@pytest.mark.parametrize(
    ("name", "believed"),
    [("seed", True), ("data.seed", True), ("random_state", True), ("seed_length", False)],
)
def test_a_seed_is_no_size(name: str, believed: bool) -> None:
    points = tuple((params(**{name: value}), 2 * GIB) for value in (1, 2))
    assert (estimate(points, params(**{name: 1337})) is not None) == believed


def test_memory_that_falls_with_a_parameter_is_bounded_by_the_smaller_value() -> None:
    points = tuple((params(parts=parts), 16 * GIB / parts) for parts in (1, 2, 8))
    found = estimate(points, params(parts=4))
    assert found is not None
    assert 4 * GIB <= found.upper <= 8.5 * GIB


def test_few_estimates_of_random_searches_are_too_small() -> None:
    known = too_small = 0
    for seed in range(30):
        dice = random.Random(seed)
        points: list[tuple[Params, float]] = []
        for _ in range(30):
            bs, length = 2 ** dice.randint(3, 8), dice.choice([128, 256, 512])
            asked = params(bs=bs, len=length, lr=10 ** dice.uniform(-4, -1))
            real = (1 + 0.0002 * bs * length) * GIB * dice.gauss(1, 0.01)
            found = estimate(tuple(points), asked)
            if found is not None:
                known += 1
                too_small += max(found.upper, 1.1 * found.value if found.exact else 0) < real
            points.append((asked, real))
    assert known > 600
    assert too_small / known < 0.01


def test_the_numbers_of_a_command_are_named_by_their_options() -> None:
    found = mask(["python", "t.py", "--bs", "64", "--lr=1e-3", "model.width=128", "out/run3"])
    assert found.text == "python t.py --bs # --lr=# model.width=# out/run#"
    assert found.params == (
        ("bs", 64.0),
        ("lr", 0.001),
        ("model.width", 128.0),
        ("number 4", 3.0),
    )


def test_options_that_occur_twice_stay_apart() -> None:
    assert mask(["t", "--n", "1", "--n", "2"]).params == (("n", 1.0), ("n (2)", 2.0))


def test_the_parameters_of_a_sweep_s_run_come_before_those_in_its_command() -> None:
    facts = CommandFacts(
        ["python", "t.py", "run7"], "/w", params={"net": {"width": 64}, "bs": 8, "act": "relu"}
    )
    found = template_of(facts)
    assert found.params == (("bs", 8.0), ("net.width", 64.0))
    other = CommandFacts(facts.words, "/w", params={"net": {"width": 1}, "bs": 8, "act": "gelu"})
    assert template_of(other).text != found.text
