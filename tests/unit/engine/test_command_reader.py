from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.engine.command_reader import Source, Splitter, count_commands, open_source
from stoker.errors import UsageError

steady = settings(deadline=None, derandomize=True)
# Bytes that matter to the splitter come often.
streams = st.lists(
    st.sampled_from([b"a", b"b ", b" ", b"\t", b"\\", b"\n", b"\r\n", b"\r", b"#", b"\0", b"\xff"])
    | st.binary(max_size=3),
    max_size=30,
).map(b"".join)


def split(data: bytes, *, null: bool = False) -> list[bytes]:
    splitter = Splitter(null=null)
    return splitter.feed(data) + splitter.close()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        (b"", []),
        (b"echo a\necho b\n", [b"echo a", b"echo b"]),
        (b"echo a\necho b", [b"echo a", b"echo b"]),
        (b"echo a  \t\n", [b"echo a"]),
        (b"  echo a\n", [b"  echo a"]),
        (b"\n\n  \n\t\necho a\n\n", [b"echo a"]),
        (b"# all of it\n  # indented\necho a # kept\n#", [b"echo a # kept"]),
        (b"echo a\r\necho b\r\n\r\n# c\r\n", [b"echo a", b"echo b"]),
        (b"echo a \\\n  b\n", [b"echo a   b"]),
        (b"echo a\\\r\nb\r\n", [b"echo ab"]),
        (b"echo \\\n\\\n\\\na\n", [b"echo a"]),
        (b"echo a\\\\\necho b\n", [b"echo a\\\\", b"echo b"]),
        (b"echo a\\\\\\\nb\n", [b"echo a\\\\b"]),
        (b"echo a \\\n# not a comment\n", [b"echo a # not a comment"]),
        (b"# a comment is not continued \\\necho a\n", [b"echo a"]),
        (b"echo a\\\n\necho b\n", [b"echo a", b"echo b"]),
        (b"echo a\\\n", [b"echo a"]),
        (b"echo a\\", [b"echo a"]),
        (b"\\\n\\\n", []),
        (b"\\\n# c\necho a\n", [b"echo a"]),
        (b"echo \xff\xfe\n", [b"echo \xff\xfe"]),
        (b"echo a\0b\n", [b"echo a\0b"]),
        (b"echo a\rb\n", [b"echo a\rb"]),
    ],
)
def test_lines_are_read_as_people_write_them(text: bytes, commands: list[bytes]) -> None:
    assert split(text) == commands


def test_a_blank_that_is_escaped_belongs_to_the_command() -> None:
    assert split(b"touch a\\ \n") == [b"touch a\\ "]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        (b"echo a\necho b\0echo c", [b"echo a\necho b", b"echo c"]),
        (b"# sh knows comments\necho a\0", [b"# sh knows comments\necho a"]),
        (b"echo a \\\n b\0", [b"echo a \\\n b"]),
        (b"\0\0 \n\0echo a\0\0", [b"echo a"]),
        (b"echo a\\\0echo b", [b"echo a\\", b"echo b"]),
        (b"cat <<E\nx\nE\n\0", [b"cat <<E\nx\nE"]),
    ],
)
def test_with_null_a_command_is_all_between_two_nul_bytes(
    text: bytes, commands: list[bytes]
) -> None:
    assert split(text, null=True) == commands


@steady
@given(streams, st.lists(st.integers(0, 60)), st.booleans())
@example(b"a\\\r\nb\n", [2, 3, 4], False)
def test_where_the_stream_is_cut_makes_no_difference(
    data: bytes, cuts: list[int], null: bool
) -> None:
    splitter = Splitter(null=null)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found: list[bytes] = []
    for begin, end in itertools.pairwise(edges):
        found += splitter.feed(data[begin:end])
    found += splitter.close()

    assert found == split(data, null=null)


@steady
@given(streams, st.booleans())
def test_no_command_is_blank_and_none_has_its_separator(data: bytes, null: bool) -> None:
    for command in split(data, null=null):
        assert command.strip()
        assert (b"\0" if null else b"\n") not in command


@steady
@given(st.lists(st.from_regex(rb"[a-z][a-z0-9 $;|&'\"<>]{0,10}[a-z]", fullmatch=True)))
def test_what_is_joined_by_newlines_is_taken_apart_again(commands: list[bytes]) -> None:
    assert split(b"\n".join(commands)) == commands
    assert split(b"\r\n".join(commands)) == commands
    assert split(b"\0".join(commands), null=True) == commands


@contextmanager
def opened(path: Path, *, null: bool = False) -> Iterator[Source]:
    source = open_source(str(path), null=null)
    try:
        yield source
    finally:
        os.close(source.fd)


def drained(source: Source) -> list[bytes]:
    return list(iter(source.take, None))


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_bytes(b"".join(b"echo %d\n" % number for number in range(20_000)))

    with opened(path) as source:
        assert source.always_ready
        assert drained(source) == [b"echo %d" % number for number in range(20_000)]
        assert source.ended
        assert source.take() is None


def test_a_line_longer_than_any_chunk_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    line = b"echo " + b"x" * 1_000_000
    path.write_bytes(line + b"\necho b")

    with opened(path) as source:
        assert drained(source) == [line, b"echo b"]


def test_a_file_is_read_no_faster_than_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_bytes(b"echo a\n" * 100_000)

    with opened(path) as source:
        source.take()
        assert len(source) < 10_000
        assert os.lseek(source.fd, 0, os.SEEK_CUR) <= 1 << 16


def test_the_commands_of_a_file_are_counted_without_reading_on(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_bytes(b"echo a\n\n# c\necho \\\nb\n" * 1000 + b"echo c")

    with opened(path) as source:
        assert count_commands(source.fd, null=False) == 2001
        assert len(drained(source)) == 2001


def test_a_pipe_is_never_waited_for_and_cannot_be_counted() -> None:
    reader, writer = os.pipe()
    source = Source(reader, null=False)
    assert count_commands(reader, null=False) is None
    assert source.take() is None

    os.write(writer, b"echo a\necho ")
    source.read_some()
    assert drained(source) == [b"echo a"]

    os.write(writer, b"b")
    os.close(writer)
    source.read_some()
    ended = [source.ended]
    source.read_some()
    ended.append(source.ended)
    assert ended == [False, True]
    assert drained(source) == [b"echo b"]
    os.close(reader)


def test_a_fifo_outlives_its_writers(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with opened(path) as source:
        for number in range(2):
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writer, b"echo %d\n" % number)
            os.close(writer)
            source.read_some()
            assert drained(source) == [b"echo %d" % number]
        assert not source.ended


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*missing: No such file"):
        open_source(str(tmp_path / "missing"), null=False)


def test_a_folder_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder; name a file with one command per line"):
        open_source(str(tmp_path), null=False)
