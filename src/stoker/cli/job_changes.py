"""What verbs that change jobs share: the request for the selected jobs, and the report of the answer."""

from __future__ import annotations

from stoker.cli.messages import note, print_json
from stoker.cli.selection import name_jobs, read_selection
from stoker.client.light_client import LightClient
from stoker.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.cli.arguments import Args
    from stoker.wire import Changed

_REASONS_SHOWN = 20


def change_jobs(args: Args, verb: str, **details: Any) -> Changed:
    """Send a verb's request for the selected jobs, or with `queue` for the queue itself.

    `details` are the fields that the verb's type in `wire.changes` adds to the selection.
    """
    selection = read_selection(args)
    if details.get("queue"):
        if args.ids or args.state or args.all:
            raise UsageError(f"stoker {verb} --queue takes no jobs: add only -P PROJECT")
    elif not any(selection.values()):
        raise UsageError(f"which jobs? stoker {verb} 12, 1,5-9, @, -s STATE, -P PROJECT or --all")
    states = [state.value for state in selection["states"]]
    with LightClient() as client:
        return client.change(verb, {**selection, "states": states, **details})


def report_change(args: Args, changed: Changed, done: str, nothing: str) -> int:
    """Print what was done, and why the rest was not; the exit code is 1 if a job was refused.

    With --json the whole answer is on standard output.
    """
    if args.json:
        refused = [{"id": each.id, "reason": each.reason} for each in changed.refused]
        print_json({"ids": changed.ids, "refused": refused, "notice": changed.notice})
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
