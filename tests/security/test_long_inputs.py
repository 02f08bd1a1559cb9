"""Long and deeply nested input: read in time that grows with its length, or refused.

Each text took minutes, or far more memory than it has, when it was read in time that grows with the square of
its length.
"""

from __future__ import annotations

import pytest

from security.quick_queue import QuickQueue
from stoker.engine.command_reader import Splitter
from stoker.errors import UsageError
from stoker.sweeps.files import read_toml, read_yaml

LINES = 400_000
KEYS = 20_000


def test_a_command_continued_over_very_many_lines_is_one_command() -> None:
    splitter = Splitter(null=False)
    text = b"x\\\n" * (LINES * 4) + b"end\n"
    found = [
        each
        for start in range(0, len(text), 65536)
        for each in splitter.feed(text[start : start + 65536])
    ]
    assert found == [b"x" * (LINES * 4) + b"end"]


def test_a_very_long_line_that_comes_in_pieces_is_one_command() -> None:
    splitter = Splitter(null=False)
    pieces = 1000
    for _ in range(pieces):
        assert splitter.feed(b"x" * 65536) == []
    (found,) = splitter.feed(b"\n")
    assert len(found) == pieces * 65536


def test_a_sweep_file_with_very_many_keys_is_read_with_their_lines() -> None:
    text = "".join(f"k{number} = 1\n" for number in range(KEYS))
    found = read_toml(text, "sweep.toml")
    assert len(found) == KEYS
    assert found.lines[f"k{KEYS - 1}"] == KEYS


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 30_000) + " = 1",
        " . ".join(["a"] * 30_000) + " = 1",
        "[" + ".".join(["'a'"] * 30_000) + "]",
        "x = {" + ".".join(["a"] * 30_000) + " = 1}",
        "a = " + "[" * 30_000,
        "a = " + "{a=" * 30_000,
    ],
    ids=["dotted", "spaced", "table", "inline", "arrays", "tables"],
)
def test_deeply_nested_toml_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"sweep\.toml:2: nested too deeply"):
        read_toml(f"command = 'true'\n{text}\n", "sweep.toml")


@pytest.mark.parametrize("brackets", ["[", "{a: ", "- ["], ids=["lists", "mappings", "items"])
def test_deeply_nested_yaml_is_refused(brackets: str) -> None:
    with pytest.raises(UsageError, match=r"sweep\.yaml:2: nested too deeply"):
        read_yaml("command: x\na: " + brackets * 30_000, "sweep.yaml")


def test_a_number_with_very_many_digits_is_refused_in_one_line(quick_queue: QuickQueue) -> None:
    queue = quick_queue
    (queue.work / "sweep.toml").write_text("command = 'true'\nx = " + "1" * 5000 + "\n")
    ended = queue("sweep", "-f", "sweep.toml")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "not readable as TOML" in ended.err


def test_a_sweep_file_that_is_no_sweep_file_is_refused_by_its_size(quick_queue: QuickQueue) -> None:
    queue = quick_queue
    (queue.work / "sweep.toml").write_bytes(b"#" * (5 << 20))
    ended = queue("sweep", "-f", "sweep.toml")
    assert ended.code == 2
    assert "larger than 4 MiB" in ended.err
