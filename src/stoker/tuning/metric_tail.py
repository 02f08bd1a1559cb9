"""Reads the values of a metric that a run reports while it runs."""

from __future__ import annotations

import operator
import os
import re
from typing import Any, NamedTuple

import msgspec

from stoker.sweep_results.collect import LINES, LOG
from stoker.sweep_results.metric_files.byte_tail import ByteTail
from stoker.sweep_results.metric_files.entry import UNREADABLE, Batch, step_of, to_float
from stoker.sweep_results.metric_files.found import FoundMetrics

_decode = msgspec.json.Decoder().decode


class NewValues(NamedTuple):
    """What a run has reported since the last time; `kept` of the values before are still true."""

    kept: int
    values: list[float]


class _Point(NamedTuple):
    step: float | None
    value: float


class MetricTail:
    """Reads what was added to `metrics.jsonl`, and to the log if a regex finds the metric there.

    While a run reports nothing, the files count that its training library writes into its folder. A retry
    repeats steps: then the values of these steps and of later ones are dropped.
    """

    def __init__(self, folder: str, metric: str, regex: re.Pattern[bytes] | None = None) -> None:
        self._metric = metric
        self._regex = regex
        path = os.path.join(folder, LINES)
        self._path = path
        self._reports = ByteTail(path, follow_links=True)
        self._found = FoundMetrics(folder, metric)
        log = os.path.join(folder, LOG)
        self._log = None if regex is None else ByteTail(log, follow_links=True)
        self._known: list[_Point] = []

    def read(self, *, is_last: bool = False) -> NewValues:
        """Return the values since the last call; with `is_last` also those of unfinished lines of tables."""
        before = self._known
        if os.path.exists(self._path):
            batch = Batch([_entry(line) for line in self._reports.read_lines()])
        else:
            batch = self._found.read(is_last=is_last)
        logged = self._from_log()
        if not (batch.entries or batch.restarted or logged):
            return NewValues(len(before), [])
        after = [] if batch.restarted else list(before)
        points = [
            _Point(step_of(entry), value)
            for entry in batch.entries
            if (value := _number(entry.get(self._metric))) is not None
        ]
        if batch.restarted and points and points[0].step is not None:
            after = list(before)  # a file that begins where another one ended
        for point in points:
            while after and point.step is not None and _is_repeated(after[-1].step, point.step):
                del after[-1]
            after.append(point)
        after += [_Point(None, value) for value in logged]
        self._known = after
        kept = _shared_length(before, after)
        return NewValues(kept, [point.value for point in after[kept:]])

    def _from_log(self) -> list[float]:
        if self._log is None or self._regex is None:
            return []
        found = []
        for line in self._log.read_lines():
            for match in self._regex.finditer(line):
                text = match[1 if self._regex.groups else 0].decode("utf-8", "replace").strip()
                value = _number(text, strict=False)
                if value is not None:
                    found.append(value)
        return found


def _shared_length(before: list[_Point], after: list[_Point]) -> int:
    """Return how many points at the start are the same; `nan` is the same as `nan`."""
    if len(after) >= len(before) and all(map(operator.is_, before, after)):
        return len(before)  # something was added, or nothing
    pairs = enumerate(zip(before, after, strict=False))
    differ = (place for place, (old, new) in pairs if repr(old) != repr(new))
    return next(differ, min(len(before), len(after)))


def _is_repeated(known: float | None, step: float) -> bool:
    return known is not None and known >= step


def _entry(line: bytes) -> dict[str, Any]:
    try:
        found = _decode(line)
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any, *, strict: bool = True) -> float | None:
    """Return a reported number; `nan` and `inf` are reported as text, as JSON has no numbers for them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return to_float(value)
    if isinstance(value, str) and (not strict or value in ("nan", "inf", "-inf")):
        try:
            return float(value)
        except ValueError:
            return None
    return None
