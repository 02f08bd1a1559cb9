"""The benchmarks' statistics."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.measure import Contestant, Sample, Spread, interleave, ratios, spread, turn_order


def contestant(name: str) -> Contestant:
    return Contestant(name=name, argv=["true"], stdin="/dev/null", jobs=10, env={})


def test_a_spread_is_the_median_between_its_quartiles() -> None:
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(2.0, 3.0, 4.0)


def test_a_single_value_is_its_own_spread() -> None:
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_ratios_are_taken_within_each_round() -> None:
    # A machine three times slower in the second round changes no ratio.
    assert ratios([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == Spread(2.0, 2.0, 2.0)


def test_ratios_need_both_sides_of_every_round() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_a_sample_tells_throughput_and_cpu_per_job() -> None:
    sample = Sample(jobs=100, wall_s=2.0, cpu_s=4.0)
    assert (sample.jobs_per_s, sample.cpu_per_job_s) == (50.0, 0.04)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_over_two_cycles_everyone_takes_every_place_twice(count: int) -> None:
    orders = [turn_order(count, round_no) for round_no in range(2 * count)]
    for place in range(count):
        taken = Counter(order[place] for order in orders)
        assert taken == dict.fromkeys(range(count), 2)


def test_the_order_turns_round_in_every_second_cycle() -> None:
    assert turn_order(3, 0) == [0, 1, 2]
    assert turn_order(3, 1) == [1, 2, 0]
    assert turn_order(3, 3) == [2, 1, 0]


def test_every_round_runs_everyone_once() -> None:
    seen: list[str] = []

    def run_once(runner: Contestant) -> Sample:
        seen.append(runner.name)
        return Sample(jobs=runner.jobs, wall_s=1.0, cpu_s=1.0)

    samples = interleave([contestant("a"), contestant("b")], 3, run_once, lambda _: None)

    assert seen == ["a", "b", "b", "a", "b", "a"]
    assert {name: len(values) for name, values in samples.items()} == {"a": 3, "b": 3}
