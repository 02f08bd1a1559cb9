"""The selection of jobs: the arguments that verbs share, and ids as text."""

from __future__ import annotations

from stoker.cli.arguments import JSON, Args, arg
from stoker.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from stoker.cli.arguments import Argument
    from stoker.core.lifecycle import State

IDS_HELP = "1,2,5-9, @ (the last one), a name, project/name or project/name/id"
FILTERS = (
    arg("-s", "--state", action="append", default=[], metavar="STATE", help="those in this state"),
    arg("-P", "--project", metavar="PROJECT", help="those of this project"),
)


def selection_arguments(
    all_help: str, all_flags: Sequence[str] = ("--all",)
) -> tuple[Argument, ...]:
    """Return the arguments that select jobs."""
    return (
        arg("ids", nargs="*", metavar="IDS", help=IDS_HELP),
        *FILTERS,
        arg(*all_flags, action="store_true", help=all_help),
        JSON,
    )


def read_selection(args: Args) -> dict[str, Any]:
    """Return the fields of a wire.Selection."""
    return {
        "ids": join_ids(args.ids),
        "states": parse_states(args.state),
        "project": args.project,
        "all": args.all,
    }


def parse_states(words: Sequence[str]) -> list[State]:
    """Parse names of states, with commas between them, in any case."""
    if not words:
        return []
    from stoker.core.lifecycle import State

    states: list[State] = []
    for word in ",".join(words).split(","):
        if not word.strip():
            continue
        try:
            states.append(State(word.strip().lower()))
        except ValueError:
            known = ", ".join(state.value for state in State)
            raise UsageError(f"-s {word}: no such state; there are: {known}") from None
    return states


def join_ids(words: Sequence[str]) -> str | None:
    """Join several words to one list: `1 2 5-9` is `1,2,5-9`."""
    return ",".join(words) or None


def format_ids(ids: Sequence[int]) -> str:
    """Format ids as a user types them: `1-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def name_jobs(ids: Sequence[int]) -> str:
    """Format ids as `job 3` or `2 jobs: 1-3,7`; a very long list is cut."""
    text = format_ids(ids)
    if len(text) > 200:
        text = text[: text.rindex(",", 0, 200)] + ",…"
    return f"job {text}" if len(ids) == 1 else f"{len(ids):,} jobs: {text}"
