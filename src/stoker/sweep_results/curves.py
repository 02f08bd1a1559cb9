"""Curves of the metrics that runs reported over time."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Any, NamedTuple

from stoker.errors import NotFoundError
from stoker.sweep_results.collect import read_steps, to_number
from stoker.sweep_results.metric_files.entry import to_float
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import check_names, describe_reported, metric_names, varied_params
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
        raise _nothing_reported(records, x, y)
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
        raise _nothing_reported(records, x, y)
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


def _nothing_reported(records: Sequence[RunRecord], x: str, y: str) -> NotFoundError:
    names = metric_names(records)
    is_other = names and y not in names
    remedy = (
        f"they {describe_reported(names, y)}" if is_other else f"call stoker.report(step, {y}=…)"
    )
    return NotFoundError(f"no run has reported {y} over {x}: {remedy}")


def read_curve(folder: str, x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the xs and ys that one run reported; places without a number are left out."""
    return _curve(read_steps(folder, y), x, y, _as_reported)


def read_thin_curves(
    folder: str, x: str, metrics: Sequence[str], most: int
) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield the name, xs and ys of each metric that one run reported, thinned out to be drawn.

    Values that are NaN or infinite are kept. Times are seconds since the first report.
    """
    entries = read_steps(folder, metrics[0] if metrics else None)
    times = (to_float(entry.get("time")) for entry in entries)
    began = next((time for time in times if time is not None), 0.0)
    for metric in metrics:
        xs, ys = _curve(entries, x, metric, to_number)
        if xs:
            xs, ys = thin_out(xs, ys, most)
            yield metric, [at - began for at in xs] if x == "time" else xs, ys


def thin_out(xs: list[float], ys: list[float], most: int) -> tuple[list[float], list[float]]:
    """Return about `most` points of a curve, so that its drawing shows every spike and gap.

    Of each stretch, the lowest, the highest and the first value that is no finite number stay. The first and
    the last point stay.
    """
    if len(xs) <= most:
        return xs, ys
    stretch = -(-2 * len(xs) // most)
    kept = {0, len(xs) - 1}
    for start in range(0, len(xs), stretch):
        chunk = ys[start : start + stretch]
        if math.isfinite(sum(chunk)):  # then all of them are
            kept |= {start + chunk.index(min(chunk)), start + chunk.index(max(chunk))}
            continue
        places = range(start, start + len(chunk))
        finite = [place for place in places if math.isfinite(ys[place])]
        if finite:
            kept |= {min(finite, key=ys.__getitem__), max(finite, key=ys.__getitem__)}
        kept |= set(islice((place for place in places if not math.isfinite(ys[place])), 1))
    return [xs[place] for place in sorted(kept)], [ys[place] for place in sorted(kept)]


def _as_reported(value: Any) -> Any:
    return value


def _plain_curve(
    entries: Sequence[dict[str, Any]], x: str, y: str
) -> tuple[list[float], list[float]] | None:
    """Return the curve if every report of y is a number at a greater x; this is the usual case, and fast."""
    there = [entry for entry in entries if y in entry]
    try:
        across = [entry[x] for entry in there]
    except KeyError:
        return None
    up = [entry[y] for entry in there]
    if not {*map(type, across), *map(type, up)} <= {int, float}:
        return None
    try:
        xs, ys = [*map(float, across)], [*map(float, up)]
    except OverflowError:
        return None
    is_rising = all(map(lt, xs, islice(xs, 1, None)))
    return (xs, ys) if is_rising and all(map(math.isfinite, xs)) else None


def _curve(
    entries: Sequence[dict[str, Any]], x: str, y: str, read: Callable[[Any], Any]
) -> tuple[list[float], list[float]]:
    plain = _plain_curve(entries, x, y)
    if plain is not None:
        return plain
    xs: list[float] = []
    ys: list[float] = []
    for number, entry in enumerate(entries):
        across = to_float(entry.get(x, number if x == "step" else None))
        up = to_float(read(entry.get(y)))
        if across is not None and up is not None:
            while xs and x == "step" and xs[-1] >= across:  # a retry repeats steps
                del xs[-1], ys[-1]
            xs.append(across)
            ys.append(up)
    return xs, ys
