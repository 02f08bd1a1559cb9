"""Curves of the metrics that runs reported over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stoker.errors import NotFoundError
from stoker.sweep_results.collect import read_steps
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import varied_params
from stoker.sweeps.cell import to_text


class Curve(NamedTuple):
    """One run's values of y over x."""

    label: str
    xs: list[float]
    ys: list[float]


def read_curves(records: Sequence[RunRecord], x: str, y: str) -> list[Curve]:
    """Return a curve for each run that reported both. If no step was reported, reports are counted."""
    varied = varied_params(records)
    found = []
    for record in records:
        label = ",".join(f"{n}={to_text(record.params[n])}" for n in varied if n in record.params)
        xs, ys = read_curve(record.dir, x, y)
        if xs:
            found.append(Curve(label or record.id, xs, ys))
    if not found:
        raise NotFoundError(f"no run has reported {y} over {x}: call stoker.report(step, {y}=…)")
    return found


def read_curve(folder: str, x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the xs and ys that one run reported."""
    xs: list[float] = []
    ys: list[float] = []
    for number, entry in enumerate(read_steps(folder)):
        across, up = entry.get(x, number if x == "step" else None), entry.get(y)
        if isinstance(across, (int, float)) and isinstance(up, (int, float)):
            while xs and x == "step" and xs[-1] >= across:  # a retry repeats steps
                del xs[-1], ys[-1]
            xs.append(float(across))
            ys.append(float(up))
    return xs, ys
