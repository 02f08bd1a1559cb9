"""The tutorial does what it says: every file is written, every command run, every output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.door import Queue

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "ten-minutes.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pattern_of(output: str) -> re.Pattern[str]:
    """What an output in the text stands for: `…` is anything within a line."""
    return re.compile(".*".join(map(re.escape, output.split("…"))))


def steps(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output that follows it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert parts[0] == "", "a block begins with a command"
    pairs = [part.partition("\n") for part in parts[1:]]
    return [(command, output) for command, _, output in pairs]


def test_every_line_of_the_tutorial_is_true(idle_queue: Queue) -> None:
    bin_dir = os.path.dirname(sys.executable)
    env = {**idle_queue.env, "PATH": f"{bin_dir}:{os.environ['PATH']}"}
    shell = ["sh", "-c"]
    ran = 0
    for kind, body in BLOCK.findall(TUTORIAL.read_text()):
        if kind == "python":
            name = body.splitlines()[0].removeprefix("# ")
            (idle_queue.work / name).write_text(body)
            continue
        assert kind == "console", "a block is a file or a session"
        for command, expected in steps(body):
            ended = subprocess.run(
                [*shell, command],
                env=env,
                cwd=idle_queue.work,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=60,
                text=True,
            )
            assert pattern_of(expected).fullmatch(ended.stdout), (command, ended.stdout)
            ran += 1
    assert ran > 20


def test_a_false_line_would_be_noticed() -> None:
    assert pattern_of("1 done, in …\n").fullmatch("1 done, in 0.2 s\n")
    assert not pattern_of("1 done, in …\n").fullmatch("2 done, in 0.2 s\n")
    assert not pattern_of("").fullmatch("an unexpected word\n")
    with pytest.raises(AssertionError, match="begins with a command"):
        steps("no command\n")
