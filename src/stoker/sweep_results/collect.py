"""Collection of runs from their folders: parameters and the last reported metrics."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.errors import NotFoundError
from stoker.sweep_results.last_lines import last_values
from stoker.sweep_results.metric_cache import MetricCache, read_last_values
from stoker.sweep_results.metric_files.entry import UNREADABLE, flatten
from stoker.sweep_results.metric_files.found import read_found_steps
from stoker.sweep_results.run_record import RunRecord

if TYPE_CHECKING:
    from stoker.sweeps.plan import Sweep

PARAMS = "params.json"
LINES = "metrics.jsonl"
SUMMARY = "metrics.json"
LOG = "log.txt"
MANIFEST = "sweep.json"

_decode = msgspec.json.Decoder().decode
_decode_lines = msgspec.json.Decoder().decode_lines
_INFINITE = {"nan", "inf", "-inf"}
_DEEPEST = 6
_SURROGATE = re.compile("[\ud800-\udfff]")
_BOOKKEEPING = ("time",)


class SweepManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The file sweep.json beside a sweep's runs: its name, command, parameters and metric.

    `cwd` is the folder from which it was submitted.
    """

    name: str
    cwd: str | None = None
    command: str | None = None
    parameters: list[str] | None = None
    metric: str | None = None
    goal: str = "minimize"
    regex: str | None = None

    @property
    def compiled_regex(self) -> re.Pattern[bytes] | None:
        """The expression that finds the metric in a log; None if there is none."""
        return re.compile(self.regex.encode()) if self.regex and self.metric else None


def find_root(name: str, base: str | None = None) -> str:
    """Return the folder of a sweep's runs: `results/NAME`, else the folder NAME."""
    base = os.getcwd() if base is None else base
    # Without . and .., as the queue knows the folders of its runs.
    tried = [os.path.normpath(os.path.join(base, *parts)) for parts in (("results", name), (name,))]
    for folder in tried:
        if os.path.isdir(folder):
            return folder
    raise NotFoundError(f"no results of {name}: there is no folder {tried[0]}; name another folder")


def read_manifest(root: str) -> SweepManifest:
    """Read the manifest of a folder; a folder without one is a sweep of its own name."""
    try:
        with open(os.path.join(root, MANIFEST), "rb") as file:
            return msgspec.json.decode(file.read(), type=SweepManifest)
    except (OSError, *UNREADABLE):
        return SweepManifest(name=os.path.basename(os.path.abspath(root)))


def write_manifest(sweep: Sweep) -> None:
    """Write the manifest of a sweep beside its runs, atomically."""
    metric = sweep.metric
    manifest = SweepManifest(
        name=sweep.name,
        cwd=None if _SURROGATE.search(sweep.base) else sweep.base,  # JSON has only text
        command=sweep.command,
        parameters=sorted(sweep.space.names),
        metric=metric.name if metric else None,
        goal=metric.goal if metric else "minimize",
        regex=metric.regex if metric else None,
    )
    save_manifest(sweep.root, manifest)


def describe_other_sweep(sweep: Sweep) -> str | None:
    """Say that the folder of a sweep has runs of another one: of another command, or other parameters."""
    there = read_manifest(sweep.root)
    parameters = sorted(sweep.space.names)
    if there.command is None or (
        there.command == sweep.command and there.parameters in (None, parameters)
    ):
        return None
    other = f"over {', '.join(there.parameters)}" if there.parameters else "without parameters"
    what = f"of '{there.command}'" if there.command != sweep.command else other
    return (
        f"{sweep.root} also has the runs of an earlier sweep {what}: results shows them together;"
        " --name NAME keeps sweeps apart"
    )


def save_manifest(root: str, manifest: SweepManifest) -> None:
    """Write a manifest to the folder that it describes, atomically."""
    os.makedirs(root, exist_ok=True)
    path = os.path.join(root, MANIFEST)
    fresh = f"{path}.{os.getpid()}.new"  # another process may write it at the same time
    with open(fresh, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    os.replace(fresh, path)


def find_manifest(folder: str) -> SweepManifest:
    """Read the manifest of a run's sweep from one of the folders above."""
    for _step in range(_DEEPEST):
        folder = os.path.dirname(folder)
        if os.path.exists(os.path.join(folder, MANIFEST)):
            return read_manifest(folder)
    return SweepManifest(name="")


def collect(root: str) -> list[RunRecord]:
    """Return every run below a folder, sorted by name."""
    manifest = read_manifest(root)
    cache = MetricCache(root, manifest.metric)
    regex = manifest.compiled_regex
    found = [read_run(folder, manifest.metric, regex, cache.read) for folder in _folders(root, 0)]
    cache.save()
    return found


def _folders(root: str, depth: int) -> Iterator[str]:
    """Yield the folders with a params.json; folders inside such a folder belong to the run."""
    try:
        with os.scandir(root) as entries:
            folders = sorted(e.path for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return
    for folder in folders:
        if os.path.exists(os.path.join(folder, PARAMS)):
            yield folder
        elif depth < _DEEPEST:
            yield from _folders(folder, depth + 1)


def read_run(
    folder: str,
    metric: str | None = None,
    regex: re.Pattern[bytes] | None = None,
    read_files: Callable[[str], dict[str, Any]] | None = None,
) -> RunRecord:
    """Read one run. `problem` says what could not be read. `read_files` reads files of training libraries."""
    read_files = read_files or (lambda folder: read_last_values(folder, metric))
    record = RunRecord(dir=folder, id=os.path.basename(folder), params={})
    try:
        params = _decode(_read(folder, PARAMS) or b"{}")
        record.params = params if isinstance(params, dict) else {}
        record.metrics = _metrics(record, metric, regex, read_files)
    except (OSError, *UNREADABLE) as error:
        record.problem = f"{PARAMS}: {_reason(error)}"
    return record


def read_steps(folder: str, metric: str | None = None) -> list[dict[str, Any]]:
    """Return everything that a run reported, in order; unreadable lines are left out.

    A run that reported nothing has what its training library wrote into the folder; of several kinds of files
    those that have the metric.
    """
    data = _read(folder, LINES)
    return read_found_steps(folder, metric) if data is None else _lines(data)[0]


def _metrics(
    record: RunRecord,
    metric: str | None,
    regex: re.Pattern[bytes] | None,
    read_files: Callable[[str], dict[str, Any]],
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if regex is not None and metric is not None:
        found.update(_from_log(record.dir, metric, regex))
    try:
        data = _read(record.dir, LINES)
        if data is not None:
            last = last_values(data)
            if last is None:
                entries, record.problem = _lines(data)
                for entry in entries:
                    found.update(entry)
            else:
                found.update(last)
        summary = _read(record.dir, SUMMARY)
        decoded = None if summary is None else _decode(summary)
        if decoded is not None and not isinstance(decoded, list):
            found.update(flatten(decoded))
        elif data is None:
            found.update(read_files(record.dir))
    except (OSError, *UNREADABLE) as error:
        record.problem = f"metrics: {_reason(error)}"
    return {name: to_number(value) for name, value in found.items() if name not in _BOOKKEEPING}


def _read(folder: str, name: str) -> bytes | None:
    # open() with its buffers would take half of the time for ten thousand runs
    try:
        file = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(file).st_size
        data = os.read(file, size + 1)
        while len(data) < size and (more := os.read(file, size - len(data))):
            data += more
        return data
    finally:
        os.close(file)


def _lines(data: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """Return the entries of a JSON Lines file, and its first error; an unfinished last line is no error."""
    whole = data[: data.rfind(b"\n") + 1]
    try:
        found, problem = _decode_lines(whole), None
    except UNREADABLE:
        found, problem = _line_by_line(whole)
    return [entry for entry in found if isinstance(entry, dict)], problem


def _line_by_line(data: bytes) -> tuple[list[Any], str | None]:
    found, problem = [], None
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            if line.strip():
                found.append(_decode(line))
        except UNREADABLE as error:
            problem = problem or f"{LINES}:{number}: {_reason(error)}"
    return found, problem


def _from_log(folder: str, metric: str, regex: re.Pattern[bytes]) -> dict[str, Any]:
    data = _read(folder, LOG)
    if data is None:
        return {}
    last = None
    for match in regex.finditer(data):
        last = match
    if last is None:
        return {}
    text = last[1 if regex.groups else 0].decode("utf-8", "replace").strip()
    try:
        return {metric: float(text)}
    except ValueError:
        return {metric: text}


def to_number(value: Any) -> Any:
    """Return a reported value; nan and inf can be texts, and integers beyond all floats are infinite."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return math.inf if value > 0 else -math.inf
    return float(value) if isinstance(value, str) and value in _INFINITE else value


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
