from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.core.job import Request
from stoker.errors import StokerError
from stoker.store.database import FIRST_VERSION, SCHEMA_VERSION, Database
from stoker.store.jobs import Jobs

KILLED_WITH_A_WAL = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("CREATE TABLE later (x)")
connection.execute("PRAGMA user_version = 99")
connection.execute("INSERT INTO later VALUES (1)")
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "some.db")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB; where none may be mounted, skip, but never in CI."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"cannot mount: {mounted.stderr}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def snapshot(path: str) -> dict[str, bytes]:
    """All that a database's files say; an empty write-ahead log says nothing."""
    parent, name = os.path.split(path)
    found = {}
    for entry in os.listdir(parent):
        if entry.startswith(name) and not entry.endswith("-shm"):
            with open(os.path.join(parent, entry), "rb") as file:
                found[entry] = file.read()
    return {entry: content for entry, content in found.items() if content}


def make(path: str, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def refusal(path: str) -> str:
    """What the user is told; the file must be left untouched."""
    before = snapshot(path)
    complaint = complaint_about(path)
    gc.collect()  # what an error held open is closed now at the latest
    assert snapshot(path) == before
    assert path in complaint
    assert "\n" not in complaint
    return complaint


def complaint_about(path: str) -> str:
    try:
        Database(path).close()
    except StokerError as error:
        return str(error)
    return "no complaint"


def test_a_fresh_database_is_its_owners_alone_and_has_the_schema(path: str) -> None:
    database = Database(path)
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.close()

    assert os.stat(path).st_mode & 0o777 == 0o600
    assert {"meta", "class", "job", "earlier_attempt"} <= tables
    assert version == SCHEMA_VERSION


def test_what_was_committed_is_there_after_reopening(path: str) -> None:
    database = Database(path)
    database.write("INSERT INTO meta VALUES (?, ?)", ("a", "1"))
    database.commit()
    database.close()

    again = Database(path)
    rows = again.execute("SELECT * FROM meta").fetchall()
    again.close()

    assert rows == [("a", "1")]


def test_what_was_not_committed_is_not_there_after_reopening(path: str) -> None:
    database = Database(path)
    database.write("INSERT INTO meta VALUES (?, ?)", ("a", "1"))
    database.close()

    again = Database(path)
    rows = again.execute("SELECT * FROM meta").fetchall()
    again.close()

    assert rows == []


def test_writes_tell_how_many_rows_they_changed(path: str) -> None:
    database = Database(path)
    database.write("INSERT INTO meta VALUES ('a', '1'), ('b', '2')", ())

    changed = database.write("UPDATE meta SET value = ?", ("3",))
    missed = database.write("UPDATE meta SET value = '4' WHERE name = 'c'", ())
    database.close()

    assert (changed, missed) == (2, 0)


def test_closing_leaves_one_tidy_file(path: str) -> None:
    database = Database(path)
    database.write("INSERT INTO meta VALUES ('a', '1')", ())
    database.commit()
    database.close()

    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_an_empty_file_left_by_a_crash_is_made_a_database(path: str) -> None:
    Path(path).touch()

    database = Database(path)
    count = database.execute("SELECT count(*) FROM job").fetchone()[0]
    database.close()

    assert count == 0


def test_a_commit_with_nothing_written_does_nothing(path: str) -> None:
    database = Database(path)
    database.commit()
    assert not database.connection.in_transaction
    database.close()


def test_a_newer_database_is_refused_untouched_and_the_remedy_named(path: str) -> None:
    make(path, "CREATE TABLE later (x)", "PRAGMA user_version = 99")

    assert "newer Stoker (schema 99, this one knows" in refusal(path)
    assert "upgrade Stoker" in refusal(path)


def test_a_newer_database_whose_writer_was_killed_is_refused_untouched(path: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WITH_A_WAL, path], check=False)
    assert len(snapshot(path)) == 2

    assert "newer Stoker" in refusal(path)


@pytest.mark.parametrize("version", [1, FIRST_VERSION - 1])
def test_a_database_of_a_development_version_is_refused_untouched_and_the_remedy_named(
    path: str, version: int
) -> None:
    Database(path).close()
    make(path, f"PRAGMA user_version = {version}")

    told = refusal(path)
    assert f"was made by a development version of Stoker (schema {version})" in told
    assert "move it away to start anew" in told


@pytest.mark.parametrize("content", [b"not a database at all\n" * 100, b"x", b"SQLite format 3\0"])
def test_a_file_that_is_no_database_is_refused_untouched(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)

    assert "move it away" in refusal(path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION])
def test_somebody_elses_database_is_refused_untouched(path: str, version: int) -> None:
    make(path, "CREATE TABLE recipes (cake TEXT)", f"PRAGMA user_version = {version}")

    assert "not a Stoker database" in refusal(path)


def test_a_database_that_lost_its_second_half_is_refused_untouched(path: str) -> None:
    database = Database(path)
    for number in range(200):
        database.write("INSERT INTO meta VALUES (?, ?)", (str(number), "x" * 500))
    database.commit()
    database.close()
    os.truncate(path, 8192)

    assert "damaged" in refusal(path)


def test_a_refused_file_is_let_go(path: str) -> None:
    make(path, "CREATE TABLE later (x)", "PRAGMA user_version = 99")

    with pytest.raises(StokerError) as caught:
        Database(path)

    open_files = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if links(entry)}
    assert path not in open_files
    assert caught.value


def links(entry: os.DirEntry[str]) -> bool:
    return os.path.lexists(entry.path)


def test_a_folder_that_does_not_exist_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match="missing"):
        Database(str(tmp_path / "missing" / "some.db"))


def test_a_path_that_is_a_folder_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StokerError, match="cannot open"):
        Database(str(tmp_path))


def test_a_full_disk_is_waited_for_and_everything_is_there_exactly_once(small_disk: Path) -> None:
    database = Database(str(small_disk / "some.db"))
    jobs = Jobs(database)
    ballast = small_disk / "ballast"
    waits: list[str] = []

    def make_room(message: str) -> None:
        waits.append(message)
        if len(waits) == 3:
            ballast.unlink()

    database.on_full = make_room
    jobs.add_waiting(b"before", Request())
    database.commit()
    jobs.remember_earlier()
    fill(ballast)

    for number in range(100):
        jobs.add_claimed(b"command %d" % number + b"x" * 1000, Request(timeout_s=number % 3), "0")
        jobs.read_again(b"before")
    database.commit()
    seen = database.execute("SELECT times FROM seen").fetchall()
    database.close()

    again = Database(str(small_disk / "some.db"))
    rows = again.execute("SELECT id, attempt FROM job ORDER BY id").fetchall()
    classes = again.execute("SELECT count(*) FROM class").fetchone()
    again.close()
    assert len(waits) == 3
    assert "some.db" in waits[0]
    assert rows == [(1, 0), *((number + 2, 1) for number in range(100))]
    assert seen == [(100,)]
    assert classes == (4,)


def test_a_transaction_larger_than_the_cache_waits_for_a_full_disk_too(small_disk: Path) -> None:
    database = Database(str(small_disk / "some.db"))
    database.execute("PRAGMA cache_size = 4")
    ballast = small_disk / "ballast"
    database.on_full = lambda _message: ballast.unlink()
    fill(ballast)

    for number in range(100):
        database.write("INSERT INTO meta VALUES (?, ?)", (str(number), "x" * 2000))
    database.commit()

    count = database.execute("SELECT count(*) FROM meta").fetchone()
    database.close()
    assert count == (100,)


def test_commits_reach_the_disk_itself_once_a_second(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    synced: list[int] = []
    monkeypatch.setattr("stoker.store.database.time.monotonic", lambda: now[0])
    monkeypatch.setattr("stoker.store.database.os.fdatasync", synced.append)
    database = Database(path)

    database.sync_when_due()
    database.write("INSERT INTO meta VALUES ('a', '1')", ())
    database.commit()
    database.sync_when_due()
    assert not synced

    now[0] += 1.0
    database.sync_when_due()
    database.sync_when_due()
    database.close()
    assert len(synced) == 1


def fill(ballast: Path) -> None:
    """Take all the space there is."""
    with open(ballast, "wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def test_the_log_is_emptied_sooner_where_the_disk_has_little_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(str(tmp_path / "run.db"))
    pages = "PRAGMA wal_autocheckpoint"
    assert database.execute(pages).fetchone() == (4000,)
    found = os.statvfs(tmp_path)
    left = [*found[:3], *(2048 * 1024 // found.f_frsize,) * 2, *found[5:]]
    monkeypatch.setattr("os.fstatvfs", lambda _fd: os.statvfs_result(left))
    database.sync()
    assert database.execute(pages).fetchone() == (64,)
    database.close()
