"""Databases of earlier versions are migrated when they are opened, and keep what they hold."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stoker.core.job import Request
from stoker.core.lifecycle import State
from stoker.errors import StokerError
from stoker.store import database as module
from stoker.store.database import SCHEMA_VERSION, Database
from stoker.store.jobs import Jobs


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database that this version made, with a job in it."""
    path = str(tmp_path / "some.db")
    database = Database(path)
    Jobs(database).add_waiting(b"echo later", Request(timeout_s=60.0))
    database.commit()
    database.close()
    return path


def upgrade(patch: pytest.MonkeyPatch, folder: Path, *migrations: str) -> None:
    """Pretend that Stoker has become newer by these migrations."""
    for number, sql in enumerate(migrations, SCHEMA_VERSION + 1):
        (folder / f"{number}.sql").write_text(sql)
    patch.setattr(module, "_MIGRATIONS", str(folder))
    patch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + len(migrations))


def version_of(path: str) -> int:
    connection = sqlite3.connect(path)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return int(version)


def test_an_older_database_is_migrated_step_by_step_and_keeps_its_jobs(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(
        monkeypatch,
        tmp_path,
        "ALTER TABLE job ADD COLUMN colour TEXT;",
        "UPDATE job SET colour = 'red';",
    )

    database = Database(path)

    assert database.execute("SELECT id, command, colour FROM job").fetchall() == [
        (1, b"echo later", "red")
    ]
    assert Jobs(database).counts() == {State.WAITING: 1}
    database.close()
    assert version_of(path) == SCHEMA_VERSION + 2


def test_a_migrated_database_is_not_migrated_again(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(monkeypatch, tmp_path, "CREATE TABLE colour (name TEXT);")
    Database(path).close()

    Database(path).close()  # a second time, the table would be in the way

    assert version_of(path) == SCHEMA_VERSION + 1


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(monkeypatch, tmp_path, "DELETE FROM job; CREATE TABLE tally (x);")
    connection = sqlite3.connect(path)
    before = list(connection.iterdump())

    with pytest.raises(StokerError, match="already exists"):
        Database(path)

    assert list(connection.iterdump()) == before
    connection.close()
    assert version_of(path) == SCHEMA_VERSION


def test_a_migrated_database_is_refused_by_the_version_before(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        upgrade(newer, tmp_path, "CREATE TABLE colour (name TEXT);")
        Database(path).close()

    with pytest.raises(StokerError, match="was written by a newer Stoker"):
        Database(path)
