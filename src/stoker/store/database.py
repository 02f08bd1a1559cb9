"""One SQLite file, one connection, explicit transactions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from stoker.errors import StokerError
from stoker.failpoints import reach

# The schema of schema.sql. A release that changes it adds migrations/9.sql, which brings 8 to 9, and so on.
SCHEMA_VERSION = 8
FIRST_VERSION = (
    8  # that a release has: lower numbers were development versions, and are not migrated
)
_MIGRATIONS = "migrations"
_APPLICATION_ID = 0x53746F6B  # "Stok": tells our files from other programs'
_SYNC_PERIOD_S = 1.0
# Pages that many jobs change go from the log to the database itself once for so many, and sooner where
# the log would take more than a part of what is left of the disk: it would wait for space that it holds.
_WAL_PAGES = 4000
_FEWEST_WAL_PAGES = 32
_PART_OF_DISK = 8
_CHECKED_BYTES = 8 << 20  # a larger file would take too long to check whenever it is opened


class FullDiskError(StokerError):
    """A write failed and was rolled back."""


class Database:
    """One database file. A power loss can undo at most the commits of the last second."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.on_full: Callable[[str], None] = _wait_a_second
        self.before_commit: Callable[[], None] = _nothing
        self.on_rollback: Callable[[], None] = _nothing
        self.refusal: str | None = None
        """Why the last transaction is not committed yet; nothing else can be written until it is."""
        self.on_unsynced: Callable[[str], None] = _tell_nobody
        self._sync_problem: str | None = None
        self._written: list[tuple[str, Sequence[object]]] = []
        self._patient = True
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            if os.path.getsize(path):
                self._inspect()
            self._open()
        except (OSError, sqlite3.OperationalError) as error:
            raise StokerError(f"cannot open {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StokerError(
                f"{path} is damaged ({error}); it was left as it is: move it away to start anew"
            ) from error

    def _inspect(self) -> None:
        """Check the file read-only first: a writing connection would change a foreign file."""
        with open(self.path, "rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise sqlite3.DatabaseError("file is not a database")
        # Without a WAL, open the file as immutable: this creates no files beside it, and ignores a rollback
        # journal from a creation that was interrupted.
        connection = open_read_only(self.path, alone=not os.path.exists(f"{self.path}-wal"))
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            objects = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application == _APPLICATION_ID and os.path.getsize(self.path) <= _CHECKED_BYTES:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise sqlite3.DatabaseError(found.splitlines()[-1])
        finally:
            connection.close()
        if version <= SCHEMA_VERSION and objects and application != _APPLICATION_ID:
            raise sqlite3.DatabaseError("not a Stoker database")
        if 0 < version < FIRST_VERSION:
            raise StokerError(
                f"{self.path} was made by a development version of Stoker (schema {version}); it was left"
                " as it is: move it away to start anew"
            )
        if version > SCHEMA_VERSION:
            raise StokerError(
                f"{self.path} was written by a newer Stoker (schema {version}, this one knows"
                f" {SCHEMA_VERSION}); it was left as it is: upgrade Stoker"
            )

    def _open(self) -> None:
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self) -> None:
        self.execute = self.connection.execute
        version = self.execute("PRAGMA user_version").fetchone()[0]
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            reach("database-empty")
            self.run_script(
                "schema.sql",
                f"PRAGMA user_version = {SCHEMA_VERSION};"
                f" PRAGMA application_id = {_APPLICATION_ID};",
            )
        for number in range(version + 1, SCHEMA_VERSION + 1) if version else ():
            self.run_script(
                os.path.join(_MIGRATIONS, f"{number}.sql"), f"PRAGMA user_version = {number};"
            )
        reach("database-prepared")
        self._wal = os.open(f"{self.path}-wal", os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
        self._unsynced_since: float | None = None
        self._page_bytes: int = self.execute("PRAGMA page_size").fetchone()[0]
        self._wal_pages = 0
        self._fit_wal()

    def _fit_wal(self) -> None:
        """Limit the WAL by the free space of the disk."""
        found = os.fstatvfs(self._wal)
        room = found.f_bavail * found.f_frsize // self._page_bytes // _PART_OF_DISK
        pages = max(_FEWEST_WAL_PAGES, min(_WAL_PAGES, room))
        if pages != self._wal_pages:
            self._wal_pages = pages
            self.execute(f"PRAGMA wal_autocheckpoint = {pages}")

    def run_script(self, name: str, more: str = "") -> None:
        """Run one of this package's SQL files, and more statements, as one transaction."""
        path = os.path.join(os.path.dirname(__file__), name)
        with open(path, encoding="utf-8") as file:
            self.connection.executescript(f"BEGIN; {file.read()} {more} COMMIT;")

    def write(self, statement: str, values: Sequence[object]) -> int:
        """Execute a statement in the open transaction or a new one; return the number of changed rows."""
        if self.refusal is not None:
            self._begin_again(self.refusal)
        elif not self._written:
            self.execute("BEGIN IMMEDIATE")
        self._written.append((statement, values))
        while True:
            try:
                return self.execute(statement, values).rowcount
            except sqlite3.OperationalError as error:
                if not self._patient:
                    raise
                # SQLite writes a transaction that exceeds its cache before the commit.
                last = self._written.pop()
                self._begin_again(str(error))
                self._written.append(last)

    def commit(self) -> None:
        """Commit all writes; on a full disk wait for space."""
        while not self.try_commit():
            self.on_full(f"cannot write {self.path}: {self.refusal}")

    def try_commit(self) -> bool:
        """Commit without waiting; return False if it fails. The writes are kept for the next try."""
        if not self._written:
            return True
        try:
            if self.refusal is not None:
                self._write_again()
                self.refusal = None
            self.before_commit()
            self.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._rollback()
            self.refusal = str(error)
            return False
        self._written.clear()
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
        return True

    def write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement for each of many rows, inside `transaction`."""
        assert not self._patient, "rows of an iterator cannot be written a second time"
        self.connection.executemany(statement, rows)

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Open a transaction; a full disk rolls it back and raises FullDiskError.

        With `durable`, it is synced to the disk when this returns.
        """
        if self.refusal is not None:
            raise self._refuse(self.refusal)
        assert not self._written, "a transaction is open"
        self._written.append(("", ()))
        self._patient = False
        try:
            self.execute("BEGIN IMMEDIATE")
            yield
            self.before_commit()
            reach("database-before-commit")
            self.execute("COMMIT")
            reach("database-after-commit")
        except BaseException as error:
            self._rollback()
            self.on_rollback()
            if isinstance(error, sqlite3.OperationalError):
                raise self._refuse(str(error)) from error
            raise
        finally:
            self._written.clear()
            self._patient = True
        if durable:
            self.sync()
        elif self._unsynced_since is None:
            self._unsynced_since = time.monotonic()

    def _rollback(self) -> None:
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def _begin_again(self, refusal: str) -> None:
        """Wait for space, then repeat all writes of this transaction."""
        while True:
            self._rollback()
            self.refusal = refusal
            self.on_full(f"cannot write {self.path}: {refusal}")
            try:
                self._write_again()
            except sqlite3.OperationalError as error:
                refusal = str(error)
            else:
                self.refusal = None
                return

    def _write_again(self) -> None:
        self.execute("BEGIN IMMEDIATE")
        for statement, values in self._written:
            self.execute(statement, values)

    def _refuse(self, reason: str) -> FullDiskError:
        return FullDiskError(
            f"cannot write {self.path}: {reason}; nothing was changed: make room, then try again"
        )

    def sync_due_s(self) -> float | None:
        """Return in how many seconds commits must be synced; None if all are synced."""
        if self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + _SYNC_PERIOD_S - time.monotonic())

    def sync_when_due(self) -> None:
        """Sync commits to the disk if a second has passed."""
        if (
            self._unsynced_since is not None
            and time.monotonic() - self._unsynced_since >= _SYNC_PERIOD_S
        ):
            self.sync()

    def sync(self) -> str | None:
        """Sync all commits to the disk now; return a warning if the disk cannot.

        The commits are valid in either case while the machine runs. The sync is repeated every second;
        `on_unsynced` is called when the problem begins and when it ends.
        """
        reach("database-before-sync")
        try:
            os.fdatasync(self._wal)
            if self._sync_problem is not None:
                # The kernel does not repeat a failed write: write the pages to the database file instead.
                self.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        except (OSError, sqlite3.OperationalError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            warning = (
                f"the disk reports an error for {self.path} ({reason}): what was changed is in the queue,"
                " but a loss of power may undo it; look at the disk"
            )
            if self._sync_problem is None:
                self.on_unsynced(warning)
            self._sync_problem = warning
            self._unsynced_since = time.monotonic()
            return warning
        if self._sync_problem is not None:
            self._sync_problem = None
            self.on_unsynced(f"the disk takes {self.path} again: what was changed is durable again")
        self._unsynced_since = None
        self._fit_wal()
        return None

    def close(self) -> None:
        """Close the database; SQLite merges the WAL into the file."""
        reach("database-before-close")
        self.connection.close()
        os.close(self._wal)


def open_read_only(path: str, *, alone: bool = False) -> sqlite3.Connection:
    """Open a database read-only; `alone` promises that no other process writes meanwhile."""
    from urllib.parse import quote

    options = "mode=ro&immutable=1" if alone else "mode=ro"
    return sqlite3.connect(f"file:{quote(os.fsencode(path))}?{options}", uri=True)


def _wait_a_second(_message: str) -> None:
    time.sleep(1.0)


def _tell_nobody(_message: str) -> None:
    """Say nothing."""


def _nothing() -> None:
    """Do nothing."""
