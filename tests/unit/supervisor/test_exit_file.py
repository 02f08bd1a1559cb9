"""Exit file: what recorders append is read once, and nothing that is put in its place does harm."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from pathlib import Path

import pytest

from stoker.supervisor.exit_file import Exit, ExitReader, ExitWriter, exits_path

FIRST = Exit("boot", 7, 800, 3 << 8, 1700000000000000, 40)
SECOND = Exit("boot", 8, 900, 15, 1700000000000001, 0)


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """Return the path of a journal, in a folder of its own."""
    (tmp_path / "queue").mkdir()
    return str(tmp_path / "queue" / "journal")


def write(journal: str, *exits: Exit) -> None:
    """Write these as a recorder does, which ends then."""
    with contextlib.closing(ExitWriter(journal)) as writer:
        assert all(map(writer.write, exits))


def test_what_recorders_write_is_read(journal: str) -> None:
    assert ExitReader(journal).read() == []

    write(journal, FIRST)
    write(journal, SECOND)

    assert ExitReader(journal).read() == [FIRST, SECOND]
    assert ExitReader(journal).find("boot", 8, 900) == SECOND
    assert ExitReader(journal).find("boot", 8, 901) is None
    assert ExitReader(journal).find("another boot", 8, 900) is None
    assert os.stat(exits_path(journal)).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "line",
    [
        b"exit boot 7 800 0 17000",  # torn
        b"exit boot 7 800 0 1700000000000000 40",
        b"exit boot 7 800 65536 1700000000000000 40 .",
        b"exit boot 7 800 -1 1700000000000000 40 .",
        b"exit boot 7 800 0 %s 40 ." % (b"9" * 30),
        "exit boot ٧ 800 0 1700000000000000 40 .".encode(),
        b"end 1.1 0 1700000000000000 40 0 .",
        b"\xff\0" * 1000,
    ],
)
def test_other_lines_say_nothing(journal: str, line: bytes) -> None:
    Path(exits_path(journal)).write_bytes(line)
    write(journal, FIRST)

    assert ExitReader(journal).read() == [FIRST]


def test_of_a_very_large_file_the_newest_lines_are_read(journal: str) -> None:
    Path(exits_path(journal)).write_bytes(b"exit boot 1 2 0 3 4 .\n" * 100_000)
    write(journal, FIRST)

    found = ExitReader(journal).read()
    assert found[-1] == FIRST
    assert len(found) < 50_000


def test_a_line_that_the_disk_refuses_is_written_later(journal: str) -> None:
    writer = ExitWriter(journal)
    assert writer.write(FIRST)
    size = os.path.getsize(exits_path(journal))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        refused = [writer.write(SECOND), writer.write(SECOND)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert refused == [False, False]
    assert writer.write(SECOND)
    writer.close()
    assert ExitReader(journal).read() == [FIRST, SECOND]


def test_a_file_that_was_read_is_removed(journal: str) -> None:
    write(journal, FIRST)
    reader = ExitReader(journal)
    reader.read()
    reader.remove()

    assert not os.path.exists(exits_path(journal))
    reader.remove()


def test_a_file_with_unread_lines_or_with_a_recorder_stays(journal: str) -> None:
    writer = ExitWriter(journal)
    assert writer.write(FIRST)
    reader = ExitReader(journal)
    reader.read()
    reader.remove()
    assert ExitReader(journal).read() == [FIRST], "its recorder may write more"

    assert writer.write(SECOND)
    writer.close()
    reader.remove()
    assert ExitReader(journal).read() == [FIRST, SECOND], "the last line was not read"


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)]
)
def test_something_else_in_its_place_says_nothing_and_blocks_nothing(
    journal: str, make: object
) -> None:
    assert callable(make)
    make(exits_path(journal))
    reader = ExitReader(journal)

    assert reader.read() == []
    reader.remove()
    assert not ExitWriter(journal).write(FIRST)
    assert os.path.lexists(exits_path(journal))


def test_no_file_is_needed_once_the_folder_is_gone(journal: str) -> None:
    shutil.rmtree(os.path.dirname(journal))

    assert ExitWriter(journal).write(FIRST)
