"""Metrics in a database of MLflow that a job has written: read only, and never for long."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    import sqlite3

_BUSY_S = 0.5
_MOST_S = 5.0
_MOST_ROWS = 200_000
_STEPS = 10_000  # of SQLite's virtual machine, between two looks at the time
_INFINITE = 1.7976931348623157e308  # what MLflow stores for inf

# The run that was started last of those with metrics: a retry makes another.
_NEWEST = """
SELECT runs.run_uuid FROM runs WHERE EXISTS (SELECT 1 FROM metrics WHERE metrics.run_uuid = runs.run_uuid)
ORDER BY runs.start_time DESC, runs.rowid DESC LIMIT 1
"""
_ROWS = """
SELECT rowid, key, value, step, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT ?
"""


class LoggedMetric(NamedTuple):
    """A value of a metric, in the order of logging; `row` is its place in the database."""

    row: int
    name: str
    value: float
    step: int


class NewestRun(NamedTuple):
    """A run of MLflow, and what it has logged after a certain place."""

    key: str
    metrics: list[LoggedMetric]


def read_newest_run(path: str, known: str | None = None, after: int = 0) -> NewestRun | None:
    """Return the newest run that has metrics; of the `known` run only those after this row.

    None if there is none, or if the file cannot be read.
    """
    import sqlite3

    try:
        with contextlib.closing(_connect(path)) as database:
            newest = database.execute(_NEWEST).fetchone()
            if newest is None:
                return None
            [key] = newest
            rows = database.execute(_ROWS, (key, after if key == known else 0, _MOST_ROWS))
            return NewestRun(str(key), [found for row in rows if (found := _metric(*row))])
    except sqlite3.Error:
        return None


def _connect(path: str) -> sqlite3.Connection:
    import sqlite3

    database = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_BUSY_S)
    database.text_factory = lambda data: data.decode("utf-8", "replace")
    deadline = time.monotonic() + _MOST_S
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _metric(
    row: object, name: object, value: object, step: object, is_nan: object
) -> LoggedMetric | None:
    """Return a row; None if it has other types, which SQLite lets pass."""
    if not (isinstance(row, int) and isinstance(name, str) and isinstance(step, int)):
        return None
    if not isinstance(value, (int, float)):
        return None
    number = math.nan if is_nan else float(value)
    if abs(number) >= _INFINITE:
        number = math.copysign(math.inf, number)
    return LoggedMetric(row, name, number, step)
