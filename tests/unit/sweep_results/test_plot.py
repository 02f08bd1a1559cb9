"""Curves are really drawn: as text, and as a picture in which they can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.colors
import matplotlib.image
import numpy
import pytest

from stoker.errors import StokerError
from stoker.sweep_results.curves import Curve
from stoker.sweep_results.plot import draw, save

FALLING = Curve("lr=0.1", [0.0, 1.0, 2.0], [2.0, 1.0, 0.0])
RISING = Curve("lr=0.2", [0.0, 1.0, 2.0], [0.0, 1.0, 2.0])


def test_a_falling_curve_falls_on_the_terminal() -> None:
    lines = draw([FALLING], "step", "loss", width=40, height=14).splitlines()
    marked = [line.index("•") for line in lines if "•" in line and "│" in line]

    assert marked == sorted(marked)
    assert marked[0] < 10
    assert marked[-1] > 20
    assert lines[-1] == "• lr=0.1"
    assert "step" in lines[-2]
    assert max(map(len, lines)) <= 40


def test_curves_differ_by_marks_or_by_colours() -> None:
    plain = draw([FALLING, RISING], "step", "loss", width=40, height=14)
    coloured = draw([FALLING, RISING], "step", "loss", width=40, height=14, coloured=True)

    assert plain.splitlines()[-2:] == ["• lr=0.1", "x lr=0.2"]
    assert "\x1b" not in plain
    assert plain.count("x") > 5
    assert "\x1b[38;5;12m" in coloured
    assert coloured.count("lr=0.2") == 1


def test_with_many_curves_there_is_no_legend() -> None:
    text = draw([FALLING] * 13, "step", "loss", width=40, height=14)
    assert "lr=" not in text


def test_an_image_shows_every_curve_at_its_position(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    save([FALLING, RISING], "step", "loss", str(path))

    picture = matplotlib.image.imread(path)[:, :, :3]
    assert picture.shape == (750, 1200, 3)
    for colour, falls in (("tab:blue", True), ("tab:orange", False)):
        near = numpy.abs(picture - matplotlib.colors.to_rgb(colour)).max(axis=2) < 0.1
        near[:, 900:] = False  # the legend
        rows, columns = numpy.nonzero(near)
        assert len(rows) > 500
        left, right = rows[columns.argmin()], rows[columns.argmax()]
        assert (left < right) == falls


def test_a_curve_of_means_has_a_band_and_a_title(tmp_path: Path) -> None:
    mean = Curve("lr=0.1 (3)", [0.0, 1.0], [1.0, 1.0], [0.5, 0.5])
    band = numpy.array(matplotlib.colors.to_rgb("tab:blue")) * 0.2 + 0.8

    def read(curve: Curve, title: str) -> numpy.ndarray[Any, Any]:
        path = tmp_path / "plot.png"
        save([curve], "step", "loss", str(path), title)
        return matplotlib.image.imread(path)[:, :, :3]

    def frame_top(picture: numpy.ndarray[Any, Any]) -> int:
        return int(numpy.flatnonzero((picture.max(axis=2) < 0.5).sum(axis=1) > 800)[0])

    def size(picture: numpy.ndarray[Any, Any]) -> int:
        return int((numpy.abs(picture - band).max(axis=2) < 0.02).sum())

    with_band, without = read(mean, "demo"), read(mean._replace(deviations=None), "")
    assert size(with_band) > 100_000
    assert size(without) < 1000
    assert frame_top(with_band) > frame_top(without) + 15  # the title is above
    text = draw([mean], "step", "loss", width=40, height=14)
    assert text.count("·") >= 2


def test_an_unknown_image_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match=r"cannot save .*xyz"):
        save([FALLING], "step", "loss", str(tmp_path / "plot.xyz"))
