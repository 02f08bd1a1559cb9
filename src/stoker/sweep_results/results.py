"""Python API `stoker.results("pacgan")`: the runs of a sweep as a list."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.sweep_results.run_record import RunRecord
from stoker.sweep_results.table import (
    Table,
    aggregate,
    describe_left_out,
    filter_records,
    make_table,
    sort_records,
)

if TYPE_CHECKING:
    import pandas


class Results(Sequence[RunRecord]):
    """Runs of a sweep, which can be indexed, sliced and iterated like a list.

    rs = stoker.results("pacgan")
    rs.best("val_acc").params
    rs.where("lr < 0.01").agg("val_acc", over="seed")
    """

    def __init__(self, records: Iterable[RunRecord], goal: str | None = None) -> None:
        self._records = list(records)
        self._goal = goal

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, place: int) -> RunRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Results: ...
    def __getitem__(self, place: int | slice) -> RunRecord | Results:
        """Return one run, or several for a slice."""
        if isinstance(place, slice):
            return self._with(self._records[place])
        return self._records[place]

    def __repr__(self) -> str:
        bad = describe_left_out(self._records)
        return f"<Results: {len(self)} run{'s' * (len(self) != 1)}{f' ({bad})' if bad else ''}>"

    def where(self, expression: str) -> Results:
        """Return the runs that satisfy a condition, like `lr < 0.01 and opt.name == 'sgd'`."""
        return self._with(filter_records(self._records, expression))

    def sort(self, *names: str) -> Results:
        """Sort by parameters or metrics; `-` before a name sorts the largest first."""
        return self._with(sort_records(self._records, names))

    def best(self, metric: str, goal: str | None = None) -> RunRecord:
        """Return the run with the best value. `goal` is minimize or maximize, by default the sweep's.

        Runs that did not succeed are left out; a warning names one with a better value.
        """
        if goal not in (None, "minimize", "maximize"):
            raise UsageError(f"goal {goal!r}: write minimize or maximize")
        goal = goal or self._goal or "maximize"
        ordered = sort_records(self._records, [f"-{metric}" if goal == "maximize" else metric])
        valued = [record for record in ordered if record.get(metric) is not None]
        best = next((record for record in valued if record.counts), None)
        if best is None:
            bad = describe_left_out(valued)
            raise NotFoundError(
                f"no run has a value of {metric}{f' (left out: {bad})' if bad else ''}"
            )
        if best is not valued[0]:
            first = valued[0]
            warnings.warn(
                f"best({metric!r}): {first.id} has a better {metric} but is {first.state}:"
                " it is left out",
                stacklevel=2,
            )
        return best

    def agg(
        self, *metrics: str, over: str | Sequence[str], failed: bool = False
    ) -> list[dict[str, Any]]:
        """Return means over a parameter: a dictionary for each group, with a Stat for each metric.

        Runs that did not succeed are left out, and `missing` counts them, unless `failed` is true.
        """
        names = [over] if isinstance(over, str) else list(over)
        table = aggregate(self._records, names, metrics or None, failed=failed)
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    def table(self, columns: Sequence[str] | None = None) -> Table:
        """Return a table of the given columns, by default the varied parameters and the metrics."""
        return make_table(self._records, columns)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with all parameters and metrics; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise StokerError("to_pandas needs pandas: pip install 'stoker[pandas]'") from None
        return pandas.DataFrame(
            [{**r.params, **r.metrics, **r.facts, "dir": r.dir} for r in self._records]
        )

    def _with(self, records: list[RunRecord]) -> Results:
        return Results(records, self._goal)


def results(name: str) -> Results:
    """Return the runs of a sweep by its name or by its folder.

    A name is looked for below `results/`, then in the queue: it may have been submitted from another folder.
    """
    from stoker.sweep_results.load import load_sweep
    from stoker.sweep_results.run_facts import STATES_UNKNOWN

    loaded = load_sweep(name)
    if not loaded.has_states:
        warnings.warn(STATES_UNKNOWN, stacklevel=2)
    manifest = loaded.manifest
    return Results(loaded.records, manifest.goal if manifest.metric is not None else None)
