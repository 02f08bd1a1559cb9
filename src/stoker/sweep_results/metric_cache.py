"""Cache of what the metric files of a sweep's runs said when they were last read.

Reading the TensorBoard files of ten thousand runs takes long; seeing that none has changed does not. The
cache is the file `.metrics_cache` beside the runs and goes with them. Without it everything is read again.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import msgspec

from stoker.sweep_results.metric_files.found import Signature, read_found_steps, sign_files

_FILE = ".metrics_cache"
_VERSION = 1  # of the readers: what others have read is read again


class _Known(msgspec.Struct, array_like=True):
    signature: Signature
    metrics: dict[str, Any]


class _Content(msgspec.Struct):
    version: int = _VERSION
    metric: str | None = None
    runs: dict[str, _Known] = {}


class MetricCache:
    """The last values in the metric files of runs; with `metric`, of the kind of file that has it."""

    def __init__(self, root: str, metric: str | None) -> None:
        self._root = root
        self._path = os.path.join(root, _FILE)
        self._metric = metric
        self._known = self._load()
        self._seen: dict[str, _Known] = {}

    def read(self, folder: str) -> dict[str, Any]:
        """Return the last value of each metric that the files of a run's folder have."""
        signature = sign_files(folder)
        if not signature:
            return {}
        key = os.path.relpath(folder, self._root)
        known = self._known.get(key)
        if known is None or known.signature != signature:
            known = _Known(signature, read_last_values(folder, self._metric))
        self._seen[key] = known
        return known.metrics

    def save(self) -> None:
        """Write what is new, if the folder is the user's own; a cache that cannot be written is left out."""
        if self._seen == self._known or not self._is_own():
            return
        fresh = f"{self._path}.{os.getpid()}.new"
        content = _Content(metric=self._metric, runs=self._seen)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(fresh, flags, 0o666), "wb") as file:
                file.write(msgspec.msgpack.encode(content))
            os.replace(fresh, self._path)
        except (OSError, UnicodeEncodeError):
            with contextlib.suppress(OSError):
                os.unlink(fresh)

    def _load(self) -> dict[str, _Known]:
        try:
            with open(self._path, "rb") as file:
                content = msgspec.msgpack.decode(file.read(), type=_Content)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        is_same = content.version == _VERSION and content.metric == self._metric
        return content.runs if is_same else {}

    def _is_own(self) -> bool:
        try:
            return os.stat(self._root).st_uid == os.geteuid()
        except OSError:
            return False


def read_last_values(folder: str, metric: str | None) -> dict[str, Any]:
    """Return the last value of each metric that the files of a run's folder have."""
    found: dict[str, Any] = {}
    for entry in read_found_steps(folder, metric):
        found.update(entry)
    return found
