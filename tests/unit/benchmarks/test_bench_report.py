import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.measure import Spread
from benchmarks.report import (
    Bound,
    Figure,
    Result,
    Table,
    Target,
    all_hold,
    render_result,
    render_verdict,
)


def result(median: float, target: Target) -> Result:
    figure = Figure(name="speed", spread=Spread(0.9, median, 1.1), target=target)
    return Result(
        name="case",
        what="What it is.",
        details=Table(("who", "pace"), [("stoker", "1")]),
        figures=[figure],
        commands=["stoker run < lines"],
    )


@pytest.mark.parametrize(
    ("bound", "below", "equal", "above"),
    [
        (Bound.AT_LEAST, False, True, True),
        (Bound.MORE_THAN, False, False, True),
        (Bound.AT_MOST, True, True, False),
        (Bound.LESS_THAN, True, False, False),
    ],
)
def test_a_target_draws_its_line_exactly(
    bound: Bound, below: bool, equal: bool, above: bool
) -> None:
    target = Target(bound, 1.0)
    assert [target.holds(value) for value in (0.9999, 1.0, 1.0001)] == [below, equal, above]


def test_a_figure_that_rounds_to_its_target_but_misses_it_falls_short() -> None:
    missed = result(0.99999, Target(Bound.AT_LEAST, 1.0))
    assert not all_hold([missed])
    assert "FALLS SHORT" in render_result(missed)
    assert "1 of 1 figures **FALL SHORT**" in render_verdict([missed])
    assert "case: speed" in render_verdict([missed])


def test_a_result_shows_median_quartiles_target_and_command() -> None:
    text = render_result(result(1.02, Target(Bound.AT_LEAST, 1.0)))
    assert "| speed  | 1.020 × | 0.900 – 1.100 | ≥ 1 ×  | holds   |" in text
    assert "stoker run < lines" in text
