"""The shepherd's journal: what was started and how it ended.

    boot  BOOT_ID PID .                       a shepherd began
    spawn KEY .                               from here on the attempt may have run
    start KEY PID TICKS .                     it runs; ticks since boot tell its pid from a reuse
    end   KEY STATUS AT_US CPU_US RSS_KB .    its wait status, when, and what it used

A KEY is `job.attempt`. The closing dot tells a whole line from a torn one. No `spawn` line means
never started; a `spawn` without an `end` means that the outcome is not known.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
from typing import NamedTuple


class Ending(NamedTuple):
    """How an attempt ended, as the shepherd saw it."""

    status: int
    at_us: int
    cpu_us: int
    max_rss_kb: int


class Record(NamedTuple):
    """All that one attempt's lines say."""

    pid: int | None = None
    ticks: int | None = None
    ending: Ending | None = None


class Journal:
    """Appends whole lines; what has not been written yet, or was refused by a full disk, is kept."""

    def __init__(self) -> None:
        self._fd = -1
        self._kept = b""
        self._notes: list[str] = []
        self.note = self._notes.append
        """Keep a line about what has happened for the next `intend` or `flush`."""

    def open(self, path: str) -> None:
        """Append to a file, and lock it: who wants its last word waits until this process is gone."""
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._kept = b"\n" if os.fstat(self._fd).st_size else b""  # the last line may be torn

    def intend(self, lines: str) -> None:
        """Append lines before the deed they announce; raises OSError, and then nothing is announced."""
        self._gather()
        told = len(self._kept)
        data = self._kept + lines.encode("ascii")
        written = self._append(data)
        if written == len(data):
            self._kept = b""
            return
        # What was torn gets a line of its own, so that it cannot be read as something else.
        self._kept = data[written:told] if written < told else b"~\n"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> None:
        """Write what is kept, as far as the disk takes it."""
        self._gather()
        if self._kept:
            self._kept = self._kept[self._append(self._kept) :]

    def _gather(self) -> None:
        if self._notes:
            self._kept += "".join(self._notes).encode("ascii")
            self._notes.clear()

    def _append(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except OSError:
            return 0


def journal_path(base: str, number: int) -> str:
    """Where one of several shepherds writes: the first to `base` itself."""
    return f"{base}.{number}" if number else base


def read_journals(base: str) -> dict[str, Record]:
    """Everything the journals of all shepherds tell."""
    paths = map(journal_path, itertools.repeat(base), itertools.count())
    records: dict[str, Record] = {}
    for path in itertools.takewhile(os.path.exists, paths):
        records.update(read_journal(path))
    return records


def read_journal(path: str) -> dict[str, Record]:
    """Everything a journal tells, by key, once its shepherd is gone; a missing file tells nothing."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            text = file.read().decode("ascii", "replace")
    except FileNotFoundError:
        return {}
    records: dict[str, Record] = {}
    for line in text.split("\n"):
        with contextlib.suppress(ValueError):  # two torn lines may have grown together
            _read_line(line, records)
    return records


def _read_line(line: str, records: dict[str, Record]) -> None:
    match line.split():
        case ["spawn", key, "."]:
            records[key] = Record()
        case ["start", key, pid, ticks, "."]:
            records[key] = Record(int(pid), int(ticks))
        case ["end", key, *figures, "."] if len(figures) == 4:
            ending = Ending(*map(int, figures))
            records[key] = records.get(key, Record())._replace(ending=ending)
