from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoker.cli.safe_text import clean, last_lines, one_line

RED, RESET = "\x1b[31m", "\x1b[0m"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Pieces of escape sequences, to be put together at random.
hostile = st.lists(
    st.sampled_from(
        [
            "\x1b",
            "[",
            "]",
            "31",
            "m",
            "2J",
            ";",
            "\x07",
            "\\",
            "\x9b",
            "\0",
            "P",
            "a",
            "\n",
            "\x1b[1m",
        ]
    )
    | st.characters(),
    max_size=30,
).map("".join)


def is_harmless(text: str) -> bool:
    """Whether nothing but text, tabs, newlines and whole colour sequences is left."""
    rest = COLOUR.sub("", text)
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 名 text\twith tab\n", "plain ü 名 text\twith tab\n"),
        (f"{RED}red{RESET}", f"{RED}red{RESET}"),
        ("\x1b[1;38;5;208mbold\x1b[m", "\x1b[1;38;5;208mbold\x1b[m"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b[10;20Hmoved", "moved"),
        ("\x1b[?25lhidden", "hidden"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cGF5bG9hZA==\x07after", "after"),
        ("\x1bPdcs\x1b\\after", "after"),
        ("\x1b]0;never closed", ""),
        ("\x1bcreset", "reset"),
        ("a\x08b\x07c\x00d\x7fe", "abcde"),
        ("\x9b2Jc1", "2Jc1"),
        ("at the end\x1b", "at the end"),
        ("at the end\x1b[", "at the end["),
        ("at the end\x1b[31", "at the end[31"),
        ("smuggled\x1b[\x002J", "smuggled[2J"),
    ],
)
def test_colours_stay_and_other_control_sequences_are_removed(text: str, shown: str) -> None:
    assert clean(text) == shown


@settings(deadline=None, derandomize=True, max_examples=400)
@given(hostile)
def test_no_control_sequence_passes(text: str) -> None:
    assert is_harmless(clean(text))


@settings(deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=["C"])))
def test_plain_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


def test_a_command_is_shown_on_one_line() -> None:
    assert one_line(b"echo a\n\n  echo\tb\r\n") == "echo a echo b"
    assert one_line(b"echo \xff") == "echo �"


def test_a_long_command_is_cut_to_the_width() -> None:
    assert one_line(b"x" * 300, 10) == "xxxxxxxxx…"
    assert one_line(b"x" * 10, 10) == "x" * 10


@settings(deadline=None, derandomize=True, max_examples=300)
@given(hostile, st.integers(2, 12))
@example("abc\x1b[31mred", 6)
def test_any_command_is_one_safe_line_of_the_width(text: str, width: int) -> None:
    shown = one_line(text.encode(errors="replace"), width)

    assert is_harmless(shown)
    assert "\n" not in shown
    assert len(COLOUR.sub("", shown)) <= width


def test_the_last_lines_of_a_log_are_shown_without_blank_ones(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1\n2\n3\n\n4\n5\n6\n\n\n")

    assert last_lines(str(log), 3) == ["4", "5", "6"]
    assert last_lines(str(log), 5) == ["3", "4", "5", "6"]


def test_a_progress_bar_is_shown_as_it_was_last_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"start\r\n 10%\r 50%\r100%\ndone\r\n")

    assert last_lines(str(log)) == ["start", "100%", "done"]


def test_a_log_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(str(tmp_path / "missing")) == []
    assert last_lines(str(tmp_path)) == []
    (tmp_path / "empty").touch()
    assert last_lines(str(tmp_path / "empty")) == []


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open(log, "wb") as file:
        file.seek(1 << 33)
        file.write(b"\nthe end\n")

    assert last_lines(str(log), 1) == ["the end"]


@pytest.mark.parametrize("before", [495, 498, 499, 500])
def test_a_long_line_is_not_cut_inside_a_colour(tmp_path: Path, before: int) -> None:
    log = tmp_path / "log"
    log.write_text("x" * before + RED + "y" * 100)

    (line,) = last_lines(str(log))

    assert is_harmless(line)
