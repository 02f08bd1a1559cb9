"""Tables of runs: varied parameters and metrics, sorted, filtered, averaged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from stoker.errors import UsageError
from stoker.sweep_results.run_record import RunRecord
from stoker.sweeps.cell import Cell
from stoker.sweeps.conditions import Condition
from stoker.sweeps.tree import DefinitionError, did_you_mean

# What comes before the hash in a run's id.
_HASH = re.compile(r"^.*-(?=(?:[0-9a-f]{8}|[0-9a-f]{16})$)", re.DOTALL)

_REPORTED = (None, "done", "pruned")  # a run of unknown state counts
_SHOWN = 8
BAD_STATES = ("failed", "killed", "lost", "skipped")


class Stat(msgspec.Struct, frozen=True):
    """Mean of several runs, their sample standard deviation, and their number."""

    mean: float
    std: float | None
    n: int


class Table(msgspec.Struct, frozen=True):
    """Columns and rows; a cell is a value, a Stat, or None if empty."""

    columns: list[str]
    rows: list[list[Any]]


def varied_params(records: Sequence[RunRecord]) -> list[str]:
    """Return the parameters that are not the same in all runs, in the order of the first run."""
    seen: dict[str, set[str]] = {}
    missing: set[str] = set()
    names = list(dict.fromkeys(name for record in records for name in record.params))
    for record in records:
        for name in names:
            if name in record.params:
                seen.setdefault(name, set()).add(_key(record.params[name]))
            else:
                missing.add(name)
    return [name for name in names if len(seen[name]) > 1 or name in missing]


def metric_names(records: Sequence[RunRecord]) -> list[str]:
    """Return every metric of the runs, in the order of first occurrence; `step` is not a metric."""
    found = dict.fromkeys(name for record in records for name in record.metrics)
    return [name for name in found if name != "step"]


def filter_records(records: Sequence[RunRecord], expression: str) -> list[RunRecord]:
    """Return the runs that satisfy a condition over parameters, metrics and facts."""
    try:
        condition = Condition(expression)
    except DefinitionError as error:
        raise UsageError(str(error)) from None
    check_names(records, condition.names)
    return [record for record in records if condition.holds(_point(record, condition.names))]


def sort_records(records: Sequence[RunRecord], keys: Sequence[str]) -> list[RunRecord]:
    """Sort runs by these names; `-` before one sorts the largest first; missing values come last."""
    found = list(records)
    for key in reversed(keys):
        name, falls = key.removeprefix("-"), key.startswith("-")
        check_names(records, {name})
        known = [record for record in found if _is_value(record.get(name))]
        known.sort(key=lambda record: _order(record.get(name)), reverse=falls)
        found = known + [record for record in found if not _is_value(record.get(name))]
    return found


def sort_by_goal(records: Sequence[RunRecord], metric: str, goal: str) -> list[RunRecord]:
    """Sort runs by their metric, the best first; those that do not count come last."""
    if all(record.get(metric) is None for record in records):
        return list(records)
    ordered = sort_records(records, [f"-{metric}" if goal == "maximize" else metric])
    return sorted(ordered, key=lambda record: not record.counts)


def make_table(records: Sequence[RunRecord], columns: Sequence[str] | None = None) -> Table:
    """Make a table with a row for each run: by default its id, the varied parameters, the metrics, its state.

    If there are neither varied parameters nor metrics: all parameters.
    """
    if columns is None:
        columns = [*varied_params(records), *metric_names(records)]
        columns = columns or list(dict.fromkeys(name for r in records for name in r.params))
        columns = list(dict.fromkeys(["run", *columns, "state"]))
    else:
        check_names(records, columns)
    return Table(list(columns), [[record.get(name) for name in columns] for record in records])


def aggregate(
    records: Sequence[RunRecord],
    over: Sequence[str],
    metrics: Sequence[str] | None = None,
    *,
    failed: bool = False,
) -> Table:
    """Make a row for each group of runs that differ only in `over`: mean ± std (n) of each metric.

    `missing` counts the runs of a group that did not succeed or lack one of the metrics. With `failed`, runs
    that did not succeed count too.
    """
    check_names(records, over)
    kept = [name for name in varied_params(records) if name not in over]
    metrics = [*(metrics or _numeric(records))]
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        params = {name: value for name, value in record.params.items() if name not in over}
        groups.setdefault(_key(params), []).append(record)
    rows = []
    for group in groups.values():
        good = [record for record in group if record.counts or failed]
        stats = [_stat([record.get(name) for record in good]) for name in metrics]
        whole = sum(all(is_number(r.get(name)) for name in metrics) for r in good)
        missing = len(group) - whole
        rows.append([*(group[0].params.get(name) for name in kept), *stats, len(group), missing])
    return Table([*kept, *metrics, "runs", "missing"], rows)


def sort_means(table: Table, metric: str, goal: str) -> None:
    """Sort the rows of a table of means by a metric, the best first."""
    if metric not in table.columns:
        return
    place, sign = table.columns.index(metric), -1 if goal == "maximize" else 1

    def order(row: list[Any]) -> tuple[bool, float]:
        cell = row[place]
        return (False, sign * cell.mean) if isinstance(cell, Stat) else (True, 0.0)

    table.rows.sort(key=order)


def shorten_ids(table: Table) -> Table:
    """Return the table with the hash of each run instead of its whole id, which repeats the parameters."""
    if "run" not in table.columns:
        return table
    place = table.columns.index("run")
    rows = [[*row[:place], _HASH.sub("", str(row[place])), *row[place + 1 :]] for row in table.rows]
    return Table(table.columns, rows)


def describe_left_out(records: Sequence[RunRecord]) -> str | None:
    """Count the runs that ended without success, by state: `2 failed, 1 lost`; None if there are none."""
    states = [record.state for record in records]
    counts = [f"{states.count(state)} {state}" for state in BAD_STATES if state in states]
    return ", ".join(counts) or None


def explain_unreported(records: Sequence[RunRecord], metric: str) -> str | None:
    """Say that no run has reported a metric although runs have ended, and what they did report."""
    ended = [record for record in records if record.state in _REPORTED]
    if not ended or any(record.get(metric) is not None for record in records):
        return None
    return f"no run has reported {metric}: they {describe_reported(metric_names(records), metric)}"


def describe_reported(names: Sequence[str], wanted: str) -> str:
    """Say what was reported instead of a metric: `reported acc, loss: did you mean 'acc'?`."""
    if not names:
        return "reported no metric"
    near = did_you_mean(wanted, names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    hint = f": {near}" if near.startswith("did") else ""
    return f"reported {', '.join(names[:_SHOWN])}{more}{hint}"


def _numeric(records: Sequence[RunRecord]) -> list[str]:
    return [n for n in metric_names(records) if any(is_number(r.metrics.get(n)) for r in records)]


def _stat(values: Sequence[Any]) -> Stat | None:
    numbers = [float(value) for value in values if is_number(value)]
    if not numbers:
        return None
    n = len(numbers)
    mean = math.fsum(numbers) / n
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (n - 1)) if n > 1 else None
    return Stat(mean, std, n)


def check_names(records: Sequence[RunRecord], names: Collection[str]) -> None:
    """Raise UsageError for a name that no run has."""
    known = {"run", "state"} | {
        name for r in records for source in (r.params, r.metrics, r.facts) for name in source
    }
    for name in names:
        if records and name not in known:
            raise UsageError(f"no run has '{name}': {did_you_mean(name, sorted(known))}")


def _point(record: RunRecord, names: Collection[str]) -> dict[str, Cell]:
    values = {name: record.get(name) for name in names}
    return {name: Cell(value, "", "", "") for name, value in values.items() if value is not None}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, of which means can be taken."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_value(value: Any) -> bool:
    return value is not None and value == value


def _order(value: Any) -> tuple[int, Any]:
    """Return a sort key: numbers before texts before other values."""
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, _key(value))
