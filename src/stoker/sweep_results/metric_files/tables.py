"""Readers of tables: CSV files, lists in JSON files, and the log in `trainer_state.json`."""

from __future__ import annotations

import csv
import io
import json
import os
from typing import Any

from stoker.sweep_results.metric_files.byte_tail import ByteTail
from stoker.sweep_results.metric_files.entry import Batch, Entry, flatten, to_numbers

CSV = "metrics.csv"
JSON = "metrics.json"
TRAINER_STATE = "trainer_state.json"
_MOST_BYTES = 64 << 20


class CsvFile:
    """Reads a CSV file with a header, as Lightning's `metrics.csv`."""

    def __init__(self, path: str) -> None:
        self._tail = ByteTail(path)
        self._names: list[str] | None = None

    def read(self, *, is_last: bool) -> Batch:
        """Return the rows that were added. A last line counts once it has all columns."""
        entries: list[Entry] = []
        restarted = False
        for data in self._tail.chunks():
            if self._tail.offset == 0 and self._names is not None:
                self._names, restarted = None, True
                entries.clear()
            whole = len(data) if is_last else data.rfind(b"\n") + 1
            self._tail.accept(whole)
            entries += self._rows(data[:whole])
        return Batch(entries, restarted)

    def _rows(self, data: bytes) -> list[Entry]:
        found: list[Entry] = []
        try:
            for row in csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")):
                if self._names is None:
                    self._names = row
                elif len(row) >= len(self._names):  # a short row may still be written
                    found.append(to_numbers(dict(zip(self._names, row, strict=False))))
        except csv.Error:
            return found
        return [entry for entry in found if entry]


class JsonFile:
    """Reads a JSON file that is written anew each time.

    A list of mappings, or Trainer's `log_history`, is a log. Another mapping is one entry each time it
    changes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def read(self, *, is_last: bool) -> Batch:  # noqa: ARG002 - only a whole file is JSON
        """Return what the file has, if it has changed."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return Batch([])
        with os.fdopen(file, "rb") as opened:
            facts = os.fstat(file)
            seen = facts.st_ino, facts.st_size, facts.st_mtime_ns
            if seen == self._seen:
                return Batch([])
            try:
                content = json.loads(opened.read(_MOST_BYTES))
            except (OSError, ValueError, RecursionError):
                return Batch([])  # it is being written
        is_again, self._seen = self._seen is not None, seen
        if isinstance(content, dict) and not self._path.endswith(f"/{TRAINER_STATE}"):
            return Batch([entry] if (entry := to_numbers(flatten(content))) else [])
        return Batch(_log(content), is_again)


def _log(content: Any) -> list[Entry]:
    rows = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        return []
    found = (to_numbers(row) for row in rows if isinstance(row, dict))
    return [entry for entry in found if entry]
