"""The shepherd's journal: what was started and how it ended.

    boot  BOOT_ID NAME .                      a shepherd began, under this name in cookies
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
from collections.abc import Container
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


class Story(NamedTuple):
    """What journals tell: about attempts, and the names of the shepherds that wrote them."""

    records: dict[str, Record]
    names: set[str]


def read_journals(base: str, keys: Container[str] | None = None) -> Story:
    """What the journals of all shepherds tell about some attempts (or all), once those are gone."""
    story = Story({}, set())
    paths = map(journal_path, itertools.repeat(base), itertools.count())
    for path in itertools.takewhile(os.path.exists, paths):
        _read(path, story, keys)
    return story


def read_journal(path: str) -> dict[str, Record]:
    """Everything one journal tells; a missing file tells nothing."""
    story = Story({}, set())
    _read(path, story, None)
    return story.records


def _read(path: str, story: Story, keys: Container[str] | None) -> None:
    try:
        with open(path, encoding="ascii", errors="replace", newline="\n") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            for line in file:
                with contextlib.suppress(ValueError):  # two torn lines may have grown together
                    _read_line(line, story, keys)
    except FileNotFoundError:
        return


def _read_line(line: str, story: Story, keys: Container[str] | None) -> None:
    records = story.records
    match line.split():
        case ["boot", _boot, name, "."]:
            story.names.add(name)
        case [_word, key, *_rest] if keys is not None and key not in keys:
            return
        case ["spawn", key, "."]:
            records.setdefault(key, Record())
        case ["start", key, pid, ticks, "."]:
            records[key] = records.get(key, Record())._replace(pid=int(pid), ticks=int(ticks))
        case ["end", key, *figures, "."] if len(figures) == 4:
            ending = Ending(*map(int, figures))
            records[key] = records.get(key, Record())._replace(ending=ending)
