"""Which jobs a verb is for: the words and options that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stoker.core.lifecycle import State
from stoker.errors import UsageError

if TYPE_CHECKING:
    import argparse

IDS_HELP = "1,2,5-9, @ (the last one), a name, project/name or project/name/id"


def add_selection(
    parser: argparse.ArgumentParser, *, all_help: str | None, all_flags: Sequence[str] = ("--all",)
) -> None:
    """Let a verb be told which jobs it is for."""
    add = parser.add_argument
    add("ids", nargs="*", metavar="IDS", help=IDS_HELP)
    add("-s", "--state", action="append", default=[], metavar="STATE", help="those in this state")
    add("-P", "--project", metavar="PROJECT", help="those of this project")
    if all_help:
        add(*all_flags, action="store_true", help=all_help)


def parse_states(words: Sequence[str]) -> list[State]:
    """The states that people name: one or several, in any case."""
    states: list[State] = []
    for word in ",".join(words).split(","):
        if not word.strip():
            continue
        try:
            states.append(State(word.strip().lower()))
        except ValueError:
            known = ", ".join(state.value for state in State)
            raise UsageError(f"-s {word}: there is no such state; there are {known}") from None
    return states


def join_ids(words: Sequence[str]) -> str | None:
    """Several words are one list: `1 2 5-9` is `1,2,5-9`."""
    return ",".join(words) or None


def add_queue_flag(parser: argparse.ArgumentParser, text: str) -> None:
    """Let a verb be for the queue itself instead of jobs."""
    parser.add_argument("--queue", action="store_true", help=text)


def read_selection(args: argparse.Namespace, verb: str) -> dict[str, Any]:
    """The jobs that a verb is told; for the queue itself there are none, perhaps a project."""
    if getattr(args, "queue", False):
        if args.ids or args.state or args.all:
            raise UsageError(
                f"stoker {verb} --queue is for no single jobs; -P PROJECT can be added"
            )
    else:
        require_some(args, verb)
    return {
        "ids": join_ids(args.ids),
        "states": parse_states(args.state),
        "project": args.project,
        "all": args.all,
    }


def require_some(args: argparse.Namespace, verb: str) -> None:
    """See that a verb that changes jobs is told which."""
    if not (args.ids or args.state or args.project or args.all):
        raise UsageError(f"which jobs? stoker {verb} 12, 1,5-9, @, -s STATE, -P PROJECT or --all")


def format_ids(ids: Sequence[int]) -> str:
    """Ids as one would type them: `1-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def name_jobs(ids: Sequence[int]) -> str:
    """`job 3` or `jobs 1-3,7`, cut where there are very many."""
    text = format_ids(ids)
    if len(text) > 200:
        text = text[: text.rindex(",", 0, 200)] + ",…"
    return f"job {text}" if len(ids) == 1 else f"{len(ids):,} jobs: {text}"
