from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.cli.fast_parser import parse_quickly
from stoker.cli.parser import Parser
from stoker.cli.verbs import add
from stoker.errors import UsageError

FLAGS = (
    "-n -p -g -q -C --name --name= --name=x --gpus=2 --gpus=x --quiet --quiet=1 --na -h -- - -5 1 x"
    " -gx -g2 -qn --batch --format lines csv --format=gpupeasy --node-label a=b --node-label=c=d true"
)
words = st.lists(st.sampled_from(FLAGS.split()) | st.text(max_size=3), max_size=6)


def slowly(configure: Callable[[Any], None], line: list[str]) -> dict[str, Any] | None:
    parser = Parser("stoker add", "", "")
    configure(parser)
    try:
        return vars(parser.parse_args(line))
    except (UsageError, SystemExit):
        return None


@given(words)
@example(["-n", "--", "true"])
@example(["-n", "-5", "true"])
@example(["-p", "-5", "true"])
@example(["--", "--", "true"])
@example(["--node-label", "a=b", "--node-label", "c=d", "true"])
def test_what_is_read_quickly_is_what_argparse_reads(line: list[str]) -> None:
    quickly = parse_quickly(add.configure, line)

    assert quickly is None or vars(quickly) == slowly(add.configure, line)


@pytest.mark.parametrize(
    "line",
    ["true", "-q true", "-n x -g 2 -q --timeout 2h -- sh -c x", "--name=x python a.py -n 3"],
)
def test_ordinary_lines_are_read_quickly(line: str) -> None:
    assert parse_quickly(add.configure, line.split()) is not None


@pytest.mark.parametrize("line", ["-h", "--help", "--nam x true", "-g x true", "--nonsense", "-n"])
def test_help_and_mistakes_are_left_to_argparse(line: str) -> None:
    assert parse_quickly(add.configure, line.split()) is None


def test_what_has_other_arguments_is_left_to_argparse() -> None:
    from stoker.cli.verbs import ls, run

    assert parse_quickly(run.configure, []) is None
    assert parse_quickly(ls.configure, []) is None
