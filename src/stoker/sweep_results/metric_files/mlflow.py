"""Readers of what MLflow records in a run's folder, without MLflow: in its database, or in its files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stoker.store.mlflow_database import read_newest_run
from stoker.sweep_results.metric_files.byte_tail import ByteTail
from stoker.sweep_results.metric_files.entry import Batch, Entry, to_numbers

METRICS = "metrics"
"""The folder of a run in MLflow's files that has a file for each metric; slashes in names are folders."""
_METRICS = f"/{METRICS}/"


class MlflowDatabase:
    """Reads the newest run in a database of MLflow."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._run: str | None = None
        self._row = 0
        self._steps = _Steps()

    def read(self, *, is_last: bool) -> Batch:  # noqa: ARG002 - MLflow writes whole values
        """Return the values that were added."""
        found: list[Entry] = []
        restarted = False
        while True:
            newest = read_newest_run(self._path, self._run, self._row)
            if newest is None:
                break
            if newest.key != self._run:
                restarted = restarted or self._run is not None
                self._run, self._row, self._steps = newest.key, 0, _Steps()
                found.clear()
            if not newest.metrics:
                break
            self._row = newest.metrics[-1].row
            found += [
                self._steps.entry(name, value, step) for _, name, value, step in newest.metrics
            ]
        return Batch(_in_order(found), restarted)


class MlflowFiles:
    """Reads the metrics of one run in MLflow's files: lines with a time, a value and a step."""

    def __init__(self) -> None:
        self._tails: dict[str, ByteTail] = {}
        self._steps = _Steps()
        self.paths: list[str] = []
        """The files to read, one for each metric."""

    def read(self, *, is_last: bool) -> Batch:  # noqa: ARG002 - a line counts when it is whole
        """Return the values that were added."""
        found: list[Entry] = []
        for path in self.paths:
            tail = self._tails.setdefault(path, ByteTail(path))
            name = path.rpartition(_METRICS)[2]
            found += filter(None, (self._entry(name, line) for line in tail.read_lines()))
        return Batch(_in_order(found))

    def _entry(self, name: str, line: bytes) -> Entry | None:
        words = line.split()
        if len(words) not in (2, 3):
            return None
        try:
            value, step = float(words[1]), int(words[2]) if len(words) == 3 else 0
        except ValueError:
            return None
        return self._steps.entry(name, value, step)


class _Steps:
    """Numbers the values of metrics that are logged without a step: MLflow gives them all step 0."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._has_steps: set[str] = set()

    def entry(self, name: str, value: float, step: int) -> Entry:
        count = self._counts[name] = self._counts.get(name, -1) + 1
        if step != 0:
            self._has_steps.add(name)
        elif name not in self._has_steps:
            step = count
        return {**to_numbers({name: value}), "step": step}  # a metric can have the name "step"


def run_of(path: str) -> str:
    """Return the folder of MLflow's run to which a file of a metric belongs; empty if it is none."""
    before, mark, name = path.rpartition(_METRICS)
    return before if mark and name and is_run(before) else ""


def is_run(folder: str) -> bool:
    """Whether a folder is a run in MLflow's files."""
    return os.path.exists(os.path.join(folder, "meta.yaml"))


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: int(entry["step"]))
