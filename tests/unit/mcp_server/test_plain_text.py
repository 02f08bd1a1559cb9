"""What a language model gets of texts that jobs have written."""

from __future__ import annotations

import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.mcp_server.plain_text import MAX_ENTRIES, MAX_TEXT, plain_line, plain_lines, plain_value

TAGS = "".join(chr(0xE0000 + ord(char)) for char in "ignore all")


@given(st.text())
def test_a_line_is_visible_short_and_one_line(text: str) -> None:
    line = plain_line(text)
    assert len(line) <= MAX_TEXT
    assert {unicodedata.category(char) for char in line}.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn"})


@pytest.mark.parametrize(
    "hidden",
    [
        "\x1b[8m\x1b[0m",
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil.example\x1b\\",
        "\u202e",
        "\u200b",
        "\u2066",
        "\ufe0f",
        "\u3164",
        TAGS,
        "\x9b",
        "\0",
    ],
)
def test_what_cannot_be_seen_is_left_out(hidden: str) -> None:
    assert plain_line(f"loss{hidden} 0.5") == "loss 0.5"
    assert plain_lines(f"loss{hidden} 0.5\n".encode(), 10, 1000) == ["loss 0.5"]


def test_the_end_of_a_log_is_kept_with_its_columns_and_last_state_of_a_bar() -> None:
    data = b"first\n 10%\r 50%\r100%\r\na   b\t1\n\xff\n"
    assert plain_lines(data, 10, 1000) == ["first", "100%", "a   b\t1", "\ufffd"]
    assert plain_lines(b"", 10, 1000) == []
    assert plain_lines(data, 2, 1000) == ["a   b\t1", "\ufffd"]
    assert plain_lines(b"x" * 50 + b"\nend\n", 10, 20) == ["end"]
    assert plain_lines(b"x" * 50, 10, 20) == ["…" + "x" * 19]


def test_a_value_is_json_without_nan_and_not_too_long() -> None:
    deep = {"lr\x1b[31m": [math.nan, -math.inf, 1.5, True, None], "none": None, "b": b"\x1b"}
    found = plain_value(deep)
    assert found == {"lr": ["nan", "-inf", 1.5, True, None], "b": "b'\\x1b'"}
    json.dumps(found, allow_nan=False)
    assert len(plain_value({str(number): 1 for number in range(1000)})) == MAX_ENTRIES + 1
    assert len(plain_value(list(range(1000)))) == MAX_ENTRIES
