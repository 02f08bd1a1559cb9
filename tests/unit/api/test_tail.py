from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.api.log_tail import CHUNK_BYTES, LogPosition, offset_of_last, read_piece, size_of

if TYPE_CHECKING:
    from pathlib import Path


@given(
    st.lists(st.binary(max_size=6).map(lambda line: line.replace(b"\n", b"")), max_size=30),
    st.integers(0, 40),
    st.booleans(),
)
def test_the_last_lines_begin_where_splitting_all_of_them_says(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], wanted: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    data = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    path.write_bytes(data)
    kept = data[offset_of_last(str(path), wanted) :]
    whole = [line + b"\n" for line in data.split(b"\n")]
    whole[-1] = whole[-1][:-1]
    whole = whole if whole[-1] else whole[:-1]
    assert kept == b"".join(whole[max(0, len(whole) - wanted) :])


def test_lines_longer_than_a_piece_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    long = b"x" * (3 * CHUNK_BYTES)
    path.write_bytes(b"first\n" + long + b"\nlast\n")
    assert offset_of_last(str(path), 2) == len(b"first\n")


def test_a_piece_has_a_limit_and_the_rest_follows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = bytes(range(256)) * 1024
    path.write_bytes(data)
    place, got = LogPosition(), b""
    while True:
        piece, place = read_piece(str(path), place)
        assert len(piece) <= CHUNK_BYTES
        if not piece:
            break
        got += piece
    assert got == data


def test_nothing_behind_an_end_that_was_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    piece, place = read_piece(str(path), LogPosition(2), 5)
    assert piece == b"234"
    assert read_piece(str(path), place, 5)[0] == b""


def test_an_offset_beyond_the_end_waits_for_growth(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123")
    piece, place = read_piece(str(path), LogPosition(6))
    assert piece == b""
    path.write_bytes(b"0123456789")
    assert read_piece(str(path), place)[0] == b"6789"


def test_no_file_is_an_empty_one(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    assert read_piece(path, LogPosition()) == (b"", LogPosition())
    assert size_of(path) == offset_of_last(path, 5) == 0
