from __future__ import annotations

import pytest

from stoker.core.run_times import RunTimes, is_surprise, usual_s
from stoker.core.sharing.parameters import Params


def learned(*runs: tuple[Params, float]) -> RunTimes:
    known = RunTimes()
    for at, (params, seconds) in enumerate(runs):
        known = known.learn(params, seconds, float(at))
    return known


def test_a_run_without_parameters_is_expected_to_take_as_long_as_the_earlier_ones() -> None:
    assert RunTimes().expected_s(()) is None
    assert learned(((), 100.0)).expected_s(()) == 100.0
    assert learned(((), 100.0), ((), 200.0)).expected_s(()) == 150.0


def test_run_times_follow_the_parameter_that_matters() -> None:
    known = learned(
        *(
            ((("epochs", epochs), ("lr", rate)), 60.0 * epochs)
            for epochs, rate in ((1.0, 0.1), (1.0, 0.2), (10.0, 0.1), (10.0, 0.2), (50.0, 0.3))
        )
    )
    assert known.expected_s((("epochs", 1.0), ("lr", 0.7))) == pytest.approx(60.0)
    assert known.expected_s((("epochs", 50.0), ("lr", 0.7))) == pytest.approx(3000.0)
    assert known.expected_s((("epochs", 20.0), ("lr", 0.7))) == pytest.approx(1200.0, rel=0.1)


def test_parameters_that_the_runs_do_not_cover_count_like_the_median() -> None:
    known = learned(((("n", 1.0),), 10.0), ((("n", 2.0),), 20.0), ((("n", 3.0),), 90.0))
    assert known.expected_s((("n", 500.0),)) == 20.0


def test_only_the_last_sets_of_parameters_are_remembered() -> None:
    known = learned(*(((("n", float(n)),), 1.0 + n) for n in range(100)))
    assert len(known.points) == 32
    assert known.points[-1] == ((("n", 99.0),), 100.0)


@pytest.mark.parametrize(
    ("expected_s", "took_s", "surprises"),
    [(None, 1.0, True), (100.0, 120.0, False), (100.0, 130.0, True), (100.0, 70.0, True)],
)
def test_a_quarter_more_or_less_is_a_surprise(
    expected_s: float | None, took_s: float, surprises: bool
) -> None:
    assert is_surprise(expected_s, took_s) is surprises
    assert not is_surprise(0.5, 4.0)  # too short to matter


def test_an_unknown_kind_counts_like_the_median_of_the_known_kinds() -> None:
    assert usual_s([]) is None
    kinds = [learned(((), seconds)) for seconds in (10.0, 60.0, 3600.0)]
    assert usual_s([*kinds, RunTimes()]) == 60.0
