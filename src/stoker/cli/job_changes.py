"""What verbs that change jobs share: the request for the selected jobs, and the report of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from stoker.cli.messages import note, print_json
from stoker.cli.selection import name_jobs, read_selection
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.cli.arguments import Args
    from stoker.wire import Changed

_REASONS_SHOWN = 20

R = TypeVar("R", bound=Selection)


def change_jobs(
    args: Args, verb: Callable[[Client, R], Changed], request: type[R], **details: Any
) -> Changed:
    """Send a verb's request for the selected jobs, or with `queue` for the queue itself."""
    name = verb.__name__
    selection = read_selection(args)
    if details.get("queue"):
        if args.ids or args.state or args.all:
            raise UsageError(f"stoker {name} --queue takes no jobs: add only -P PROJECT")
    elif not any(selection.values()):
        raise UsageError(f"which jobs? stoker {name} 12, 1,5-9, @, -s STATE, -P PROJECT or --all")
    with Client() as client:
        return verb(client, request(**selection, **details))


def report_change(args: Args, changed: Changed, done: str, nothing: str) -> int:
    """Print what was done, and why the rest was not; the exit code is 1 if a job was refused.

    With --json the whole answer is on standard output.
    """
    if args.json:
        print_json(changed)
        return 1 if changed.refused else 0
    if changed.ids:
        print(f"{done} {name_jobs(changed.ids)}")
    elif not changed.refused:
        print(nothing)
    if changed.notice is not None:
        note(changed.notice)
    for refusal in changed.refused[:_REASONS_SHOWN]:
        note(refusal.reason)
    if len(changed.refused) > _REASONS_SHOWN:
        note(f"… and {len(changed.refused) - _REASONS_SHOWN:,} more jobs were refused")
    return 1 if changed.refused else 0
