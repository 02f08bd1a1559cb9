"""Curves of the metrics that runs reported over time."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Sequence
from typing import NamedTuple

from stoker.errors import NotFoundError
from stoker.sweep_results.collect import read_steps
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import check_names, varied_params
from stoker.sweeps.cell import to_text


class Curve(NamedTuple):
    """Values of y over x: of one run, or means with their standard deviations."""

    label: str
    xs: list[float]
    ys: list[float]
    deviations: list[float] | None = None


def read_curves(records: Sequence[RunRecord], x: str, y: str) -> list[Curve]:
    """Return a curve for each run that reported both. If no step was reported, reports are counted."""
    varied = varied_params(records)
    found = []
    for record in records:
        xs, ys = read_curve(record.dir, x, y)
        if xs:
            found.append(Curve(_label(record, varied) or record.id, xs, ys))
    if not found:
        raise _nothing_reported(x, y)
    return found


def read_mean_curves(
    records: Sequence[RunRecord], x: str, y: str, over: Collection[str]
) -> list[Curve]:
    """Return a curve of means for each group of runs that differ only in `over`.

    A mean counts all runs of the group that reported anything: places that one of them lacks are left out.
    """
    check_names(records, over)
    kept = [name for name in varied_params(records) if name not in over]
    groups: dict[str, list[dict[float, float]]] = {}
    labels: dict[str, str] = {}
    for record in records:
        xs, ys = read_curve(record.dir, x, y)
        if xs:
            rest = {name: value for name, value in record.params.items() if name not in over}
            key = json.dumps(rest, sort_keys=True)
            labels.setdefault(key, _label(record, kept))
            groups.setdefault(key, []).append(dict(zip(xs, ys, strict=True)))
    if not groups:
        raise _nothing_reported(x, y)
    return [_mean(labels[key], runs, x) for key, runs in groups.items()]


def _mean(label: str, runs: Sequence[dict[float, float]], x: str) -> Curve:
    shared = [at for at in runs[0] if all(math.isfinite(run.get(at, math.nan)) for run in runs)]
    name = f"{label or 'all'} ({len(runs)})"
    if not shared:
        raise NotFoundError(f"{name}: these runs have no {x} in common: leave --over out")
    columns = [[run[at] for run in runs] for at in shared]
    deviations = [statistics.stdev(column) if len(runs) > 1 else 0.0 for column in columns]
    return Curve(name, shared, [math.fsum(column) / len(runs) for column in columns], deviations)


def _label(record: RunRecord, names: Sequence[str]) -> str:
    return ",".join(f"{n}={to_text(record.params[n])}" for n in names if n in record.params)


def _nothing_reported(x: str, y: str) -> NotFoundError:
    return NotFoundError(f"no run has reported {y} over {x}: call stoker.report(step, {y}=…)")


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
