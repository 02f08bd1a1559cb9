"""One SQLite file, one connection, explicit transactions."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence

from stoker.errors import StokerError

SCHEMA_VERSION = 1
_SYNC_PERIOD_S = 1.0


class Database:
    """Opens or makes the file, and keeps what is committed safe: at most a second of it at power loss."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.on_full: Callable[[str], None] = _wait_a_second
        self._written: list[tuple[str, Sequence[object]]] = []
        fresh = not os.path.exists(path)
        if fresh:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            self._open(fresh)
        except sqlite3.OperationalError as error:
            raise StokerError(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StokerError(
                f"{path} is damaged ({error}); it was left as it is: move it away to start anew"
            ) from error

    def _open(self, fresh: bool) -> None:
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.execute = self.connection.execute
        version = self.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not fresh and self.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise sqlite3.DatabaseError("not a Stoker database")
        if version > SCHEMA_VERSION:
            raise StokerError(
                f"{self.path} was written by a newer Stoker (schema {version}, this one knows"
                f" {SCHEMA_VERSION}); it was left as it is: upgrade Stoker"
            )
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            self.run_script("schema.sql", f"PRAGMA user_version = {SCHEMA_VERSION};")
        self._wal = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
        self._unsynced_since: float | None = None

    def run_script(self, name: str, more: str = "") -> None:
        """Run one of this package's SQL files, and more, as one transaction of their own."""
        path = os.path.join(os.path.dirname(__file__), name)
        with open(path, encoding="utf-8") as file:
            self.connection.executescript(f"BEGIN; {file.read()} {more} COMMIT;")

    def write(self, statement: str, values: Sequence[object]) -> int:
        """Execute a statement inside the open transaction, begun here if need be; rows changed."""
        if not self._written:
            self.execute("BEGIN IMMEDIATE")
        self._written.append((statement, values))
        return self.execute(statement, values).rowcount

    def commit(self) -> None:
        """Make what was written since the last commit last; waits for space on a full disk."""
        if not self._written:
            return
        while True:
            try:
                self.execute("COMMIT")
                break
            except sqlite3.OperationalError as error:
                self._rollback()
                self.on_full(f"cannot write {self.path}: {error}")
                self._write_again()
        self._written.clear()
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    def _rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def _write_again(self) -> None:
        try:
            self.execute("BEGIN IMMEDIATE")
            for statement, values in self._written:
                self.execute(statement, values)
        except sqlite3.OperationalError:
            self._rollback()  # COMMIT will say so, and we wait again

    def sync_when_due(self) -> None:
        """Push commits to the disk itself once a second."""
        if (
            self._unsynced_since is not None
            and time.monotonic() - self._unsynced_since >= _SYNC_PERIOD_S
        ):
            self._unsynced_since = None
            os.fdatasync(self._wal)

    def close(self) -> None:
        """Leave one tidy file behind."""
        self.connection.close()
        os.close(self._wal)


def _wait_a_second(_message: str) -> None:
    time.sleep(1.0)
