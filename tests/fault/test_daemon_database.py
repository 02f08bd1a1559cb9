"""A database that is not what it should be is refused, left as it is, and the remedy is named."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from fault.home import Home
from fault.ledger import CLEAN
from fault.work import Work
from stoker.errors import StokerError
from stoker.wire import NewJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fault.conftest import Tell


def truncate(path: Path) -> None:
    """Cut it in its middle."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])


def truncate_to_header(path: Path) -> None:
    """Leave nothing but its beginning."""
    path.write_bytes(path.read_bytes()[:50])


def scribble(path: Path) -> None:
    """Overwrite pages, the first one excepted."""
    data = bytearray(path.read_bytes())
    data[4096:12288] = b"\xa5" * 8192
    path.write_bytes(data)


def scribble_on_header(path: Path) -> None:
    """Overwrite its beginning."""
    data = bytearray(path.read_bytes())
    data[:100] = b"\xa5" * 100
    path.write_bytes(data)


def make_newer(path: Path) -> None:
    """Let a Stoker to come have written it."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()


def make_foreign(path: Path) -> None:
    """Let another program have written it."""
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE bookmark (url TEXT)")
        db.execute("INSERT INTO bookmark VALUES ('https://example.org')")
    db.close()


def make_text(path: Path) -> None:
    """Let it be no database at all."""
    path.write_text("Dear diary,\n" * 1000)


@pytest.fixture(autouse=True)
def _counted(tell: Tell) -> None:
    tell("damaged, truncated, newer or foreign database", 1, CLEAN)


class Filled(NamedTuple):
    """A home without a daemon, and its database as it should be: it knows jobs that are over."""

    home: Home
    database: bytes

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self.home.folder / "stoker.db"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, job_program: str) -> Iterator[Filled]:
    """Return a home whose queue has run jobs; each test spoils its database anew."""
    home = Home(tmp_path_factory.mktemp("filled"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_HOME", home.path)
        patch.setenv("STOKER_TEST_HOME", home.path)
        patch.setenv("STOKER_LEASE_DIR", home.lease_folder)
        work = Work(job_program, home.work, random.Random(0))
        home.start("--gpus", "0")
        with home.client() as client:
            client.add(work.submission([NewJob(command="true")] * 300))
            [*client.wait()]
        home.stop()
        yield Filled(home, (home.folder / "stoker.db").read_bytes())
        home.close()


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (truncate, "move it away to start anew"),
        (truncate_to_header, "move it away to start anew"),
        (scribble, "move it away to start anew"),
        (scribble_on_header, "move it away to start anew"),
        (make_newer, "upgrade Stoker"),
        (make_foreign, "move it away to start anew"),
        (make_text, "move it away to start anew"),
    ],
)
def test_a_spoilt_database_is_refused_and_left_as_it_is(
    filled: Filled, spoil: Callable[[Path], None], remedy: str
) -> None:
    home, path = filled.home, filled.path
    path.write_bytes(filled.database)
    spoil(path)
    before = path.read_bytes()

    ended = subprocess.run(
        [sys.executable, "-m", "stoker", "add", "true"],
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("stoker: ")
    assert str(path) in ended.stderr
    assert remedy in ended.stderr
    with pytest.raises(StokerError, match=remedy), home.client() as client:
        client.status()  # the next attempt is refused like the first
    assert path.read_bytes() == before
    assert sorted(file.name for file in home.folder.glob("stoker.db*")) == ["stoker.db"]
    assert home.daemon() is None
    assert "Traceback" not in home.log()


# SQLite removes its journal when all that is in it has been written: whoever dies instead has not.
CUT_SHORT = """
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int unlink(const char *path) {
    size_t length = strlen(path);
    if (length > 8 && strcmp(path + length - 8, "-journal") == 0) raise(SIGKILL);
    return unlinkat(AT_FDCWD, path, 0);
}
"""


def test_a_database_whose_birth_was_cut_short_is_made_all_the_same(home: Home, work: Work) -> None:
    path = home.folder / "stoker.db"
    library = work.folder / "cut_short.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=CUT_SHORT, text=True, check=True)
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from stoker.store.database import Database; Database({str(path)!r})",
        ],
        env={**os.environ, "LD_PRELOAD": str(library)},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert path.stat().st_size
    assert path.with_name("stoker.db-journal").stat().st_size

    home.start("--gpus", "0")
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command="exit 7")]))
        [*client.wait()]
        assert client.show(added.first).exit_code == 7
