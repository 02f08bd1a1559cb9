"""Foreground runs: a folder each, with a database, a journal and the jobs' logs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stoker.errors import StokerError
from stoker.store.database import Database, open_read_only
from stoker.store.jobs import Jobs

_KEEP_RUNS = 200


class ForegroundRun:
    """One run's folder, locked against a second process for as long as this one lives."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self._lock = os.open(
            os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._lock, 20, 0).decode("ascii", "replace")
            os.close(self._lock)
            raise StokerError(
                f"that run is still going on (process {pid}): stop it first, or wait for its end"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        try:
            self.database = Database(os.path.join(folder, "run.db"))
            self.jobs = Jobs(self.database)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def journal(self) -> str:
        """The path of the supervisor's journal."""
        return os.path.join(self.folder, "journal")

    @property
    def folder_number(self) -> str:
        """Tells this folder from its copies: the numbers of its device and its inode."""
        found = os.stat(self.folder)
        return f"{found.st_dev:x}.{found.st_ino:x}"

    def path(self, *names: str) -> str:
        """A path inside the folder, whose parents exist."""
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return path

    def close(self) -> None:
        """Let go of the folder."""
        self.database.close()
        os.close(self._lock)


def create(home: str, key: Mapping[str, str]) -> ForegroundRun:
    """Begin a new run; `key` is what a later resume will look for."""
    return _begin(os.path.join(home, "runs"), _KEEP_RUNS, key)


def create_private(home: str) -> ForegroundRun:
    """Begin a run that nobody will resume: when it is over its folder may go, and goes with the next."""
    return _begin(os.path.join(home, "private"), 0, {})


def _begin(runs: str, keep: int, key: Mapping[str, str]) -> ForegroundRun:
    os.makedirs(runs, mode=0o700, exist_ok=True)
    numbers = _numbers(runs)
    _prune(runs, numbers[: max(0, len(numbers) - keep)])
    run = ForegroundRun(_make_next(runs, numbers[-1] if numbers else 0))
    for name, value in key.items():
        # A path may be no valid text: bytes keep it as it is.
        run.database.write("INSERT INTO meta VALUES (?, ?)", (name, os.fsencode(value)))
    run.database.commit()
    return run


def latest(home: str, key: Mapping[str, str]) -> ForegroundRun | None:
    """The newest run with this key, opened to be resumed."""
    folder = _find(home, key)
    return None if folder is None else ForegroundRun(folder)


def read_done(home: str, key: Mapping[str, str]) -> set[bytes]:
    """The commands that have succeeded in the newest run with this key, be it going on or over."""
    folder = _find(home, key)
    if folder is None:
        return set()
    with contextlib.closing(open_read_only(os.path.join(folder, "run.db"))) as connection:
        rows = connection.execute("SELECT command FROM job WHERE state = 'done'")
        return {command for (command,) in rows}


class RunOutcome(NamedTuple):
    """How a job with a log of its own stands."""

    log: bytes
    state: str
    attempt: int
    slots: str | None
    reason: str | None
    seconds: float | None


def read_outcomes(home: str, key: Mapping[str, str]) -> list[RunOutcome]:
    """How the jobs of the newest run with this key stand, those that have logs of their own."""
    folder = _find(home, key)
    if folder is None:
        return []
    with contextlib.closing(open_read_only(os.path.join(folder, "run.db"))) as connection:
        rows = connection.execute(
            "SELECT log, state, attempt, slots, reason, (ended_at_us - started_at_us) / 1e6 FROM job"
            " WHERE log IS NOT NULL"
        )
        return [RunOutcome(*row) for row in rows]


def _find(home: str, key: Mapping[str, str]) -> str | None:
    wanted = {name: os.fsencode(value) for name, value in key.items()}
    runs = os.path.join(home, "runs")
    folders = (os.path.join(runs, str(number)) for number in reversed(_numbers(runs)))
    return next((folder for folder in folders if _key_of(folder) == wanted), None)


def _make_next(runs: str, number: int) -> str:
    """Make the folder with the next number that nobody else has taken meanwhile."""
    while True:
        number += 1
        folder = os.path.join(runs, str(number))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        return folder


def _key_of(folder: str) -> dict[str, bytes]:
    try:
        with contextlib.closing(open_read_only(os.path.join(folder, "run.db"))) as connection:
            return dict(connection.execute("SELECT name, value FROM meta"))
    except sqlite3.Error:
        return {}


def _numbers(runs: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(runs) if name.isdecimal())
    except FileNotFoundError:
        return []


def _prune(runs: str, numbers: Sequence[int]) -> None:
    """Forget old runs; never one that is going on."""
    import shutil

    for number in numbers:
        folder = os.path.join(runs, str(number))
        try:
            with open(os.path.join(folder, "lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
