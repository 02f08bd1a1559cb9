from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.cli.arguments import arg, parse_quickly
from stoker.cli.parser import Parser
from stoker.cli.verbs import add, log, ls, run, status, why
from stoker.errors import UsageError

FLAGS = (
    "-n -p -g -q -C --name --name= --name=x --gpus=2 --gpus=x --quiet --quiet=1 --na -h -- - -5 1 x"
    " -gx -g2 -qn --batch --format lines csv --format=gpupeasy --node-label a=b --node-label=c=d true"
)
POSITIONAL = "-s -a -P -n -f --json --attempt=2 -- - -5 1 x 2,3 failed"
words = st.lists(st.sampled_from(FLAGS.split()) | st.text(max_size=3), max_size=6)


def parse_with_argparse(line: list[str]) -> dict[str, Any] | None:
    try:
        return vars(Parser("stoker add", "", "", add.ARGUMENTS).read(line))
    except (UsageError, SystemExit):
        return None


@given(words)
@example(["-n", "--", "true"])
@example(["-n", "-5", "true"])
@example(["-p", "-5", "true"])
@example(["--", "--", "true"])
@example(["--node-label", "a=b", "--node-label", "c=d", "true"])
def test_the_quick_reader_reads_what_argparse_reads(line: list[str]) -> None:
    quickly = parse_quickly(add.ARGUMENTS, line)

    assert quickly is None or vars(quickly) == parse_with_argparse(line)


@pytest.mark.parametrize(
    "line", ["true", "-q true", "-N x -g 2 -q --timeout 2h -- sh -c x", "--name=x python a.py -n 3"]
)
def test_ordinary_lines_are_read_quickly(line: str) -> None:
    assert parse_quickly(add.ARGUMENTS, line.split()) is not None


@pytest.mark.parametrize("line", ["-h", "--help", "--nam x true", "-g x true", "--nonsense", "-n"])
def test_help_and_mistakes_are_left_to_argparse(line: str) -> None:
    assert parse_quickly(add.ARGUMENTS, line.split()) is None


@given(st.lists(st.sampled_from(POSITIONAL.split()), max_size=6))
@example(["-a", "1", "2", "-s", "failed"])
@example(["1", "-a", "2"])
@example(["-n", "5", "x", "-f"])
@example([])
def test_the_quick_reader_reads_positional_arguments_as_argparse_does(line: list[str]) -> None:
    for verb in (ls, log, run, why):
        quickly = parse_quickly(verb.ARGUMENTS, line)
        try:
            slowly = vars(Parser("stoker", "", "", verb.ARGUMENTS).read(line))
        except (UsageError, SystemExit):
            slowly = None
        assert quickly is None or vars(quickly) == slowly


@pytest.mark.parametrize(
    ("verb", "line"),
    [
        (ls, ""),
        (ls, "-a"),
        (ls, "5-9 train -s failed"),
        (why, "12"),
        (log, "-n 20 12 -f"),
        (run, ""),
        (run, "-j 2 a"),
    ],
)
def test_ordinary_positional_arguments_are_read_quickly(verb: Any, line: str) -> None:
    assert parse_quickly(verb.ARGUMENTS, line.split()) is not None


def test_several_positional_arguments_are_left_to_argparse() -> None:
    from stoker.cli.verbs import diff

    assert parse_quickly(run.ARGUMENTS, ["a", "b"]) is None
    assert parse_quickly(diff.ARGUMENTS, ["a", "b"]) is None


def test_words_that_a_verb_does_not_take_are_refused() -> None:
    assert parse_quickly(status.ARGUMENTS, ["--json"]) is not None
    assert parse_quickly(status.ARGUMENTS, ["--json", "12"]) is None
    with pytest.raises(UsageError, match="unrecognized arguments: 12"):
        Parser("stoker status", "", "", status.ARGUMENTS).read(["12"])


def test_a_signed_value_may_begin_with_a_minus_and_exclusive_switches_exclude_each_other() -> None:
    parser = Parser(
        "p",
        "",
        "",
        [
            arg("-0", "--null", action="store_true"),  # else argparse takes -5 for a number
            arg("--sort", signed=True),
            arg("--csv", action="store_true", exclusive="format"),
            arg("--md", action="store_true", exclusive="format"),
        ],
    )

    assert parser.read(["--sort", "-val", "--csv"]).sort == "-val"
    with pytest.raises(UsageError, match="not allowed with"):
        parser.read(["--csv", "--md"])
