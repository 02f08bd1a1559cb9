"""The metrics that training scripts and libraries write into a run's folder by themselves.

The kinds of files are, in this order: `metrics.csv` (Lightning), `trainer_state.json` (Hugging Face's
Trainer), TensorBoard's event files, W&B's runs, MLflow's database or files, and `metrics.json`. The first
kind that has metrics counts. All content is a job's output: it may be damaged, endless, or of another type.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from stoker.sweep_results.metric_files.entry import Batch, Entry, Reader
from stoker.sweep_results.metric_files.mlflow import (
    METRICS,
    MlflowDatabase,
    MlflowFiles,
    is_run,
    run_of,
)
from stoker.sweep_results.metric_files.tables import CSV, JSON, TRAINER_STATE, CsvFile, JsonFile
from stoker.sweep_results.metric_files.tensorboard import MARK, EventFiles
from stoker.sweep_results.metric_files.wandb import SUFFIX, WandbFile

_VERSION = re.compile(r"(.*)/version_([0-9]{1,9})/(.*)", re.DOTALL)
_MOST_SKEW_S = 300.0  # between the clocks of this machine and of a file server
_DEEPEST = 5
_MOST_ENTRIES = 5000
_MLFLOW, _MLFLOW_END = "mlflow", ".db"

_Files = Sequence[os.DirEntry[str]]
Signature = list[tuple[str, int, int]]


class FoundMetrics:
    """Reads the metrics in the files of a run's folder, also while they are written.

    With `metric`, the first kind of files that has this metric counts.
    """

    def __init__(self, folder: str, metric: str | None = None) -> None:
        self._folder = folder
        self._metric = metric
        self._kinds: list[_Kind] = [
            _NewestFile(lambda file: file.name == CSV, CsvFile),
            _NewestFile(lambda file: file.name == TRAINER_STATE, JsonFile),
            _Events(),
            _NewestFile(lambda file: file.name.endswith(SUFFIX), WandbFile),
            _NewestFile(lambda file: file.name.endswith(_MLFLOW_END), MlflowDatabase),
            _MlflowRun(),
            _NewestFile(lambda file: file.name == JSON, JsonFile),
        ]
        self._chosen: _Kind | None = None
        self._kept: dict[_Kind, list[Entry]] = {kind: [] for kind in self._kinds}

    def read(self, *, is_last: bool = False) -> Batch:
        """Return what is new; with `is_last`, no more is to come."""
        files = list(_find(self._folder))
        if self._chosen is not None:
            return self._chosen.read(files, is_last=is_last)
        for kind in self._kinds:
            batch = kind.read(files, is_last=is_last)
            kept = self._kept[kind]
            if batch.restarted:
                kept.clear()
            kept += batch.entries
            if self._metric is None:
                is_chosen = bool(kept)
            else:
                is_chosen = any(self._metric in entry for entry in batch.entries)
            if is_chosen:
                self._chosen = kind
                return Batch(kept)
        if is_last:
            return Batch(next((kept for kept in self._kept.values() if kept), []))
        return Batch([])


def read_found_steps(folder: str, metric: str | None = None) -> list[Entry]:
    """Return everything that the files of a run's folder have, in order; nothing if there are none."""
    return FoundMetrics(folder, metric).read(is_last=True).entries


def sign_files(folder: str) -> Signature:
    """Return what changes when a file with metrics in a run's folder is changed; empty if there are none."""
    found = []
    for file in _find(folder):
        try:
            facts = file.stat(follow_symlinks=False)
        except OSError:
            continue
        found.append((file.path[len(folder) :], facts.st_size, facts.st_mtime_ns))
    return sorted(found)


class _Kind(Protocol):
    def read(self, files: _Files, *, is_last: bool) -> Batch:
        """Return what is new in those of the files that are of this kind."""


class _NewestFile:
    """The newest file of a kind: retries and checkpoints leave several."""

    def __init__(
        self, is_mine: Callable[[os.DirEntry[str]], bool], open_reader: Callable[[str], Reader]
    ) -> None:
        self._is_mine = is_mine
        self._open_reader = open_reader
        self._path: str | None = None
        self._reader: Reader | None = None

    def read(self, files: _Files, *, is_last: bool) -> Batch:
        mine = _last_versions(filter(self._is_mine, files))
        newest = max(mine, key=_age, default=None)
        if newest is None:
            return Batch([])
        is_other = newest.path != self._path
        restarted = is_other and self._path is not None
        if is_other or self._reader is None:
            self._path, self._reader = newest.path, self._open_reader(newest.path)
        batch = self._reader.read(is_last=is_last)
        return Batch(batch.entries, restarted or batch.restarted)


class _Events:
    """All event files of TensorBoard: a run writes several, and a retry more."""

    def __init__(self) -> None:
        self._reader = EventFiles()

    def read(self, files: _Files, *, is_last: bool) -> Batch:
        mine = sorted((file for file in files if MARK in file.name), key=_age)
        self._reader.paths = [file.path for file in mine]
        return self._reader.read(is_last=is_last)


class _MlflowRun:
    """The files of the run in MLflow's folders that was written last."""

    def __init__(self) -> None:
        self._run = ""
        self._reader = MlflowFiles()

    def read(self, files: _Files, *, is_last: bool) -> Batch:
        mine = [file for file in files if run_of(file.path)]
        if not mine:
            return Batch([])
        run = run_of(max(mine, key=_age).path)
        restarted = bool(self._run) and run != self._run
        if run != self._run:
            self._run, self._reader = run, MlflowFiles()
        self._reader.paths = [file.path for file in mine if run_of(file.path) == run]
        return Batch(self._reader.read(is_last=is_last).entries, restarted)


def _find(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the plain files below a folder, as far as they may be metrics."""
    left, waiting = _MOST_ENTRIES, [(folder, 0, False)]
    while waiting:
        path, depth, is_mlflow = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _DEEPEST:
                            inside = is_mlflow or (entry.name == METRICS and is_run(path))
                            waiting.append((entry.path, depth + 1, inside))
                    elif (is_mlflow or _is_known(entry.name)) and entry.is_file(
                        follow_symlinks=False
                    ):
                        yield entry
        except OSError:
            continue


def _is_known(name: str) -> bool:
    return (
        name in (CSV, JSON, TRAINER_STATE)
        or MARK in name
        or name.endswith(SUFFIX)
        or (_MLFLOW in name and _MLFLOW_END in name)
    )


def _last_versions(files: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Leave out what Lightning wrote before: it counts its folders, `version_0`, `version_1`, by no clock."""
    kept: dict[tuple[str, ...], tuple[int, os.DirEntry[str]]] = {}
    for file in files:
        found = _VERSION.fullmatch(file.path)
        place, version = ((found[1], found[3]), int(found[2])) if found else ((file.path,), 0)
        if place not in kept or version > kept[place][0]:
            kept[place] = version, file
    return [file for _version, file in kept.values()]


def _age(file: os.DirEntry[str]) -> tuple[bool, float, str]:
    """Return a sort key: what was written last comes last.

    A file from the future was written before the clock was set back, so before all others.
    """
    try:
        written_at = file.stat(follow_symlinks=False).st_mtime
    except OSError:
        return False, 0.0, file.path
    return written_at <= time.time() + _MOST_SKEW_S, written_at, file.path
