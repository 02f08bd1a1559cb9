"""Metrics in files that training libraries write into a run's folder by themselves.

These are Lightning's `metrics.csv` (and any other CSV of that name), `trainer_state.json` of Hugging Face's
Trainer, and TensorBoard's event files. The first kind that has metrics counts. All content is a job's output:
it may be damaged, endless, or of another type.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from typing import Any

from stoker.sweep_results.tensorboard import read_scalars

CSV = "metrics.csv"
TRAINER_STATE = "trainer_state.json"
_EVENTS = "events.out.tfevents."
_DEEPEST = 5
_MOST_ENTRIES = 5000
_MOST_BYTES = 64 << 20


def read_found_steps(folder: str) -> list[dict[str, Any]]:
    """Return everything that the files of a run's folder have, in order; nothing if there are none."""
    files = list(_find(folder))
    for read in (_read_csv, _read_trainer_state, _read_events):
        steps = read(files)
        if steps:
            return steps
    return []


def _find(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the plain files below a folder, as far as they may be metrics."""
    left, waiting = _MOST_ENTRIES, [(folder, 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _DEEPEST:
                            waiting.append((entry.path, depth + 1))
                    elif _is_known(entry.name) and entry.is_file(follow_symlinks=False):
                        yield entry
        except OSError:
            continue


def _is_known(name: str) -> bool:
    return name in (CSV, TRAINER_STATE) or _EVENTS in name


def _newest(files: list[os.DirEntry[str]], name: str) -> os.DirEntry[str] | None:
    """Return the file of this name that was written last: retries and checkpoints leave several."""
    named = [file for file in files if file.name == name]
    return max(named, key=_age, default=None)


def _age(file: os.DirEntry[str]) -> tuple[float, str]:
    try:
        return file.stat(follow_symlinks=False).st_mtime, file.path
    except OSError:
        return 0.0, file.path


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(file, "rb") as opened:
        return opened.read(_MOST_BYTES)


def _read_csv(files: list[os.DirEntry[str]]) -> list[dict[str, Any]]:
    file = _newest(files, CSV)
    if file is None:
        return []
    text = _read(file.path).decode("utf-8", "replace")
    try:
        # A short row has no value in its last column: it may still be written.
        rows = [
            row for row in csv.DictReader(io.StringIO(text, newline="")) if None not in row.values()
        ]
    except csv.Error:
        return []
    return [numbers for row in rows if (numbers := _numbers(row))]


def _read_trainer_state(files: list[os.DirEntry[str]]) -> list[dict[str, Any]]:
    file = _newest(files, TRAINER_STATE)
    try:
        state = json.loads(_read(file.path)) if file is not None else None
    except (ValueError, RecursionError):
        return []
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        return []
    return [_numbers(entry) for entry in history if isinstance(entry, dict)]


def _read_events(files: list[os.DirEntry[str]]) -> list[dict[str, Any]]:
    events = sorted((file for file in files if _EVENTS in file.name), key=_age)
    steps = [scalars for file in events for scalars in read_scalars(_read(file.path))]
    return sorted(steps, key=lambda scalars: int(scalars["step"]))


def _numbers(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the numbers of a row; texts become numbers if they are some."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(name, str) and name and isinstance(value, (str, int, float)):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            found[name] = int(number) if number.is_integer() and abs(number) < 2**53 else number
    return found
