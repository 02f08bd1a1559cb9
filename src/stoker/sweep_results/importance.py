"""Importance of the varied parameters for a metric, by permutation; needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.errors import NotFoundError, StokerError
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import Table, is_number, varied_params
from stoker.sweeps.cell import to_json

_LEAST_RUNS = 8
_REPEATS = 30


def measure_importance(records: Sequence[RunRecord], metric: str) -> Table:
    """Make a table of the varied parameters, the most important first; the shares sum to 1.

    A random forest learns the metric from the parameters. A parameter is as important as the forest gets
    worse when its values are shuffled among the runs. Only runs that count and have the metric take part.
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.inspection import permutation_importance
    except ImportError:
        raise StokerError("--importance needs scikit-learn: pip install scikit-learn") from None
    known = [each for each in records if each.counts and is_number(each.get(metric))]
    names = varied_params(known)
    if len(known) < _LEAST_RUNS or not names:
        raise NotFoundError(
            f"--importance needs {_LEAST_RUNS} runs that vary and have a value of {metric}, not {len(known)}"
        )
    columns = [_encode([record.params.get(name) for record in known]) for name in names]
    inputs = [list(row) for row in zip(*columns, strict=True)]
    values = [float(record.get(metric)) for record in known]
    forest = RandomForestRegressor(n_estimators=200, random_state=0).fit(inputs, values)
    found = permutation_importance(forest, inputs, values, n_repeats=_REPEATS, random_state=0)
    shares = [max(0.0, float(share)) for share in found.importances_mean]
    total = sum(shares) or 1.0
    ranked = sorted(zip(shares, names, strict=True), key=lambda pair: -pair[0])
    return Table(["parameter", "importance"], [[name, share / total] for share, name in ranked])


def _encode(values: Sequence[Any]) -> list[float]:
    """Return numbers as they are, and other values by their place in sorted order."""
    numbers = [float(value) for value in values if is_number(value)]
    if len(numbers) == len(values):
        return numbers
    keys = [to_json(value) for value in values]
    places = {key: float(place) for place, key in enumerate(sorted(set(keys)))}
    return [places[key] for key in keys]
