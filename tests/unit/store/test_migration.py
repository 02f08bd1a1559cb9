"""Databases of earlier versions open, keep what they hold, and go on."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from stoker.core.job import Request
from stoker.core.lifecycle import State
from stoker.engine.journal_recovery import recover
from stoker.errors import StokerError
from stoker.store import foreground_runs
from stoker.store.database import SCHEMA_VERSION, Database
from stoker.store.jobs import Jobs, Known
from stoker.store.queue_jobs import QueueJobs

FIXTURE = Path(__file__).parent / "run_of_schema_1.sql"
KEY = {"cwd": "/work", "file": "jobs.txt"}


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Return a home with one run that the first version made."""
    folder = tmp_path / "runs" / "1"
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "run.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(FIXTURE.read_text())
    connection.close()
    return str(tmp_path)


def rows(path: str, table: str) -> list[dict[str, Any]]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return found


def columns_and_indexes(database: Database) -> dict[str, object]:
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
    return {
        name: (
            database.execute(f"PRAGMA table_info({name})").fetchall(),
            database.execute(f"PRAGMA index_xinfo({name})").fetchall(),
            database.execute(
                "SELECT sql FROM sqlite_master WHERE name = ? AND type = 'index'", (name,)
            ).fetchall(),
        )
        for name in tables
    }


@pytest.mark.parametrize("table", ["meta", "class", "job", "earlier_attempt"])
def test_a_run_of_the_first_version_opens_and_keeps_its_rows(home: str, table: str) -> None:
    path = os.path.join(home, "runs", "1", "run.db")
    before = rows(path, table)
    assert before

    Database(path).close()

    after = rows(path, table)
    assert [{name: row[name] for name in before[0]} for row in after] == before
    new = {name: value for row in after for name, value in row.items() if name not in before[0]}
    assert set(new.values()) <= {None}


def test_what_was_brought_up_to_date_is_as_if_made_today(home: str, tmp_path: Path) -> None:
    migrated = Database(os.path.join(home, "runs", "1", "run.db"))
    fresh = Database(str(tmp_path / "fresh.db"))
    version = migrated.execute("PRAGMA user_version").fetchone()[0]

    assert columns_and_indexes(migrated) == columns_and_indexes(fresh)
    assert version == SCHEMA_VERSION
    migrated.close()
    fresh.close()


def test_a_run_of_the_first_version_is_found_and_resumed(home: str) -> None:
    run = foreground_runs.latest(home, KEY)
    assert run is not None
    recover(run.jobs, run.journal)
    run.database.commit()
    run.jobs.remember_earlier()

    commands = (b"echo done", b"false", b"echo \xff\xfe", b"sleep 100", b"echo later", b"new")
    assert [run.jobs.read_again(command) for command in commands] == [
        Known(1, State.DONE, 1),
        Known(2, State.FAILED, 2),
        Known(3, State.WAITING, 0),
        Known(4, State.LOST, 1),
        Known(5, State.WAITING, 0),
        None,
    ]
    attempt = run.jobs.reclaim(Known(2, State.FAILED, 2), "0")
    assert attempt.number == 3
    assert run.jobs.add_waiting(b"new", Request(timeout_s=60.0)) == 6
    run.database.commit()
    run.close()


def test_classes_of_other_projects_have_room_beside_the_old_ones(home: str) -> None:
    database = Database(os.path.join(home, "runs", "1", "run.db"))
    jobs = Jobs(database)

    assert jobs.class_of((1, 60.0, None, None, None, None)) == 2
    assert jobs.class_of((1, 60.0, "vision", None, None, None)) == 3
    database.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(home: str) -> None:
    path = os.path.join(home, "runs", "1", "run.db")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE tally (x)")  # in the way of what the migration makes last
    connection.commit()
    before = list(connection.iterdump())
    connection.close()

    with pytest.raises(StokerError, match="already exists"):
        Database(path)

    connection = sqlite3.connect(path)
    assert list(connection.iterdump()) == before
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


def test_a_queue_of_the_version_before_places_goes_on_and_its_jobs_may_run_anywhere(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "stoker.db")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((FIXTURE.parent / "queue_of_schema_4.sql").read_text())
    connection.close()

    database = Database(path)
    jobs = QueueJobs(database)

    assert [(head.id, head.slots, head.where) for head in jobs.heads(9, 9)] == [
        (3, 2, None),
        (2, 1, None),
    ]
    assert [(facts.id, facts.slots, facts.where) for facts in jobs.live_facts()] == [(1, "0", None)]
    assert jobs.class_of((1, None, None, None, None, None)) == 1
    assert jobs.class_of((1, None, None, None, None, '{"nodes":["h1"]}')) == 3
    database.commit()
    database.close()
