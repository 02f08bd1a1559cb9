"""Reads the values of a metric that a run reports while it runs."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import msgspec

from stoker.sweep_results.collect import LINES, LOG

_decode = msgspec.json.Decoder().decode
_MOST_BYTES = 16 << 20  # of one read: the rest comes with the next one


class NewValues(NamedTuple):
    """What a run has reported since the last time; `kept` of the values before are still true."""

    kept: int
    values: list[float]


class MetricTail:
    """Reads what was added to `metrics.jsonl`, and to the log if a regex finds the metric there.

    A retry repeats steps: then the values of these steps and of later ones are dropped.
    """

    def __init__(self, folder: str, metric: str, regex: re.Pattern[bytes] | None = None) -> None:
        self._metric = metric
        self._regex = regex
        self._reports = _LineTail(os.path.join(folder, LINES))
        self._log = None if regex is None else _LineTail(os.path.join(folder, LOG))
        self._steps: list[float | None] = []

    def read(self) -> NewValues:
        """Return the values since the last call."""
        kept = len(self._steps)
        values: list[float] = []
        for data in self._reports.read():
            entry = _entry(data)
            value = _number(entry.get(self._metric))
            if value is None:
                continue
            step = entry.get("step")
            step = float(step) if isinstance(step, (int, float)) else None
            while step is not None and self._steps and _is_repeated(self._steps[-1], step):
                del self._steps[-1]
                if values:
                    del values[-1]
                else:
                    kept -= 1
            self._steps.append(step)
            values.append(value)
        for value in self._from_log():
            self._steps.append(None)
            values.append(value)
        return NewValues(kept, values)

    def _from_log(self) -> list[float]:
        if self._log is None or self._regex is None:
            return []
        found = []
        for line in self._log.read():
            for match in self._regex.finditer(line):
                text = match[1 if self._regex.groups else 0].decode("utf-8", "replace").strip()
                value = _number(text, strict=False)
                if value is not None:
                    found.append(value)
        return found


class _LineTail:
    """Returns the whole lines that were added to a file. A file that was replaced is read anew."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._inode = 0

    def read(self) -> list[bytes]:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return []
        try:
            facts = os.fstat(file)
            if facts.st_ino != self._inode or facts.st_size < self._offset:
                self._offset, self._inode = 0, facts.st_ino
            if facts.st_size == self._offset:
                return []
            data = os.pread(file, _MOST_BYTES, self._offset)
        except OSError:
            return []
        finally:
            os.close(file)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _MOST_BYTES:
            whole = len(data)  # no report is so long
        self._offset += whole
        return data[:whole].splitlines()


def _is_repeated(known: float | None, step: float) -> bool:
    return known is not None and known >= step


def _entry(line: bytes) -> dict[str, Any]:
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(value: Any, *, strict: bool = True) -> float | None:
    """Return a reported number; `nan` and `inf` are reported as text, as JSON has no numbers for them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str) and (not strict or value in ("nan", "inf", "-inf")):
        try:
            return float(value)
        except ValueError:
            return None
    return None
