"""Folders of foreground runs, each with a database, a journal and the jobs' logs."""

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
    """The folder of one run, locked against other processes while this one lives."""

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
        """Device and inode numbers, which distinguish this folder from its copies."""
        found = os.stat(self.folder)
        return f"{found.st_dev:x}.{found.st_ino:x}"

    def path(self, *names: str) -> str:
        """Return a path inside the folder; creates its parents."""
        path = os.path.join(self.folder, *names)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return path

    def close(self) -> None:
        """Close the database and unlock the folder."""
        self.database.close()
        os.close(self._lock)


def create(home: str, key: Mapping[str, str]) -> ForegroundRun:
    """Begin a new run; a later resume finds it by its `key`."""
    return _begin(os.path.join(home, "runs"), _KEEP_RUNS, key)


def create_private(home: str) -> ForegroundRun:
    """Begin a run that is never resumed; the next such run deletes its folder."""
    return _begin(os.path.join(home, "private"), 0, {})


def _begin(runs: str, keep: int, key: Mapping[str, str]) -> ForegroundRun:
    os.makedirs(runs, mode=0o700, exist_ok=True)
    numbers = _numbers(runs)
    _prune(runs, numbers[: max(0, len(numbers) - keep)])
    run = ForegroundRun(_make_next(runs, numbers[-1] if numbers else 0))
    for name, value in key.items():
        # As bytes: a path may not be valid UTF-8.
        run.database.write("INSERT INTO meta VALUES (?, ?)", (name, os.fsencode(value)))
    run.database.commit()
    return run


def latest(home: str, key: Mapping[str, str]) -> ForegroundRun | None:
    """Open the newest run with this key to resume it; None if there is none."""
    folder = _find(home, key)
    return None if folder is None else ForegroundRun(folder)


def read_done(home: str, key: Mapping[str, str]) -> set[bytes]:
    """Return the commands that have succeeded in the newest run with this key, which may still run."""
    folder = _find(home, key)
    if folder is None:
        return set()
    with contextlib.closing(open_read_only(os.path.join(folder, "run.db"))) as connection:
        rows = connection.execute("SELECT command FROM job WHERE state = 'done'")
        return {command for (command,) in rows}


class RunOutcome(NamedTuple):
    """State of a job that has its own log."""

    log: bytes
    state: str
    attempt: int
    slots: str | None
    reason: str | None
    seconds: float | None


def read_outcomes(home: str, key: Mapping[str, str]) -> list[RunOutcome]:
    """Return the states of the jobs with their own logs in the newest run with this key."""
    folder = _find(home, key)
    if folder is None:
        return []
    with contextlib.closing(open_read_only(os.path.join(folder, "run.db"))) as connection:
        rows = connection.execute(
            "SELECT log, state, attempt, slots, reason, (ended_at_us - started_at_us) / 1e6 FROM job"
            " WHERE log IS NOT NULL"
        )
        return [RunOutcome(*row) for row in rows]


def folders_of(home: str, name: str) -> list[str]:
    """Return the folders from which runs with this name began, the newest run first."""
    runs = os.path.join(home, "runs")
    keys = [_key_of(os.path.join(runs, str(number))) for number in reversed(_numbers(runs))]
    wanted = os.fsencode(name)
    found = [key["cwd"] for key in keys if key.get("name") == wanted and "cwd" in key]
    return [os.fsdecode(cwd) for cwd in dict.fromkeys(found)]


def _find(home: str, key: Mapping[str, str]) -> str | None:
    wanted = {name: os.fsencode(value) for name, value in key.items()}
    runs = os.path.join(home, "runs")
    folders = (os.path.join(runs, str(number)) for number in reversed(_numbers(runs)))
    return next((folder for folder in folders if _key_of(folder) == wanted), None)


def _make_next(runs: str, number: int) -> str:
    """Make the folder with the next free number."""
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
    """Delete old runs, except those that still run."""
    import shutil

    for number in numbers:
        folder = os.path.join(runs, str(number))
        try:
            with open(os.path.join(folder, "lock"), "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
