from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.cli.safe_text import TextCleaner

RED, RESET = b"\x1b[31m", b"\x1b[0m"
AGAIN = "\r\x1b[K"
# Pieces of escape sequences and of characters, to be put together and cut at random.
hostile = st.lists(
    st.sampled_from(
        b"\x1b|[|]|31|m|2J|;|\x07|\\|\xc2\x9b|\0|P|a|\n|\r|\x1b[1m|\x1b]0;|\xe5\x90\x8d|\xff".split(
            b"|"
        )
    )
    | st.binary(max_size=3),
    max_size=20,
).map(b"".join)


def shown(*chunks: bytes) -> str:
    cleaner = TextCleaner()
    return "".join(map(cleaner.feed, chunks)) + cleaner.close()


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([b"plain\ttext\n"], "plain\ttext\n"),
        ([b"\xe5\x90", b"\x8d\n"], "名\n"),
        ([b"not \xff text"], "not \ufffd text"),
        ([RED + b"red" + RESET], "\x1b[31mred\x1b[0m\x1b[0m"),
        ([b"\x1b[3", b"1mred"], "\x1b[31mred\x1b[0m"),
        ([b"a\x1b[2", b"Jb"], "ab"),
        ([b"a\x1b", b"[2Jb"], "ab"),
        ([b"a\x1b]0;ti", b"tle", b" of\x07b"], "ab"),
        ([b"a\x1b]0;title\x1b", b"\\b"], "ab"),
        ([b"a\x1b]0;never closed\nnext line"], "a\nnext line"),
        ([b"a\x1b]0;never closed", b" at all\nnext line"], "a\nnext line"),
        ([b"end\x1b["], "end"),
    ],
)
def test_only_text_and_colours_are_shown_wherever_chunks_are_cut(
    chunks: list[bytes], text: str
) -> None:
    assert shown(*chunks) == text


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([b"10%\r20%\r30%\n"], f"10%{AGAIN}20%{AGAIN}30%\n"),
        ([b"10%\r", b"20%"], f"10%{AGAIN}20%"),
        ([b"from windows\r\n", b"next"], "from windows\nnext"),
        ([b"from windows\r", b"\nnext"], "from windows\nnext"),
        ([b"100%\r"], "100%"),
    ],
)
def test_a_progress_bar_clears_its_line_when_it_is_written_again(
    chunks: list[bytes], text: str
) -> None:
    assert shown(*chunks) == text


@given(hostile, st.lists(st.integers(0, 1000), max_size=4))
@example(b"\x1b]0;a\x1b[2J", [6])
@example(b"\x1b[" + b"9" * 70 + b"m", [60])
def test_no_control_sequence_passes_in_any_chunks(data: bytes, cuts: list[int]) -> None:
    text = shown(*in_pieces(data, cuts))

    rest = re.sub(r"\x1b\[[0-9;]*m", "", text.replace(AGAIN, ""))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest)


@given(st.text(alphabet="ab名\n\t", max_size=40), st.lists(st.integers(0, 1000), max_size=4))
def test_plain_text_is_unchanged_in_any_chunks(text: str, cuts: list[int]) -> None:
    assert shown(*in_pieces(text.encode(), cuts)) == text


def test_the_buffer_of_an_unfinished_sequence_stays_small() -> None:
    cleaner = TextCleaner()

    for _ in range(1000):
        cleaner.feed(b"\x1b[" + b"9" * 1000)
        cleaner.feed(b"\x1b]" + b"x" * 1000)

    assert len(cleaner._rest) < 100
