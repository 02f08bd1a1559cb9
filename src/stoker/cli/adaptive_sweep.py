"""`stoker sweep` with a method that chooses each run by the results so far."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from stoker.cli.arguments import Args
from stoker.cli.messages import note, print_json
from stoker.cli.pauses import describe_pauses
from stoker.errors import UsageError

if TYPE_CHECKING:
    from stoker.sweeps.plan import Sweep
    from stoker.wire import SearchBegun, Submission


_EXAMPLES = 3


def begin_search(args: Args, sweep: Sweep, common: Submission) -> int:
    """Let the daemon steer the sweep; its first run is queued when this returns."""
    _check(args)
    from stoker.cli.verbs.sweep import note_warm
    from stoker.client.client import Client
    from stoker.sweeps.queueing import make_search_order, submission_lock
    from stoker.wire import NewSetting

    cwd = os.getcwd()
    with Client(start=True) as client, submission_lock(client.home, sweep.name, cwd, note):
        if args.max_failures is not None:
            name = f"max-failures.{sweep.name}"
            client.set_config(NewSetting(name=name, value=str(args.max_failures)))
        begun = client.search(make_search_order(sweep, cwd, common))
        pauses = describe_pauses(client.status(), sweep.name) if begun.left else []
    if args.json:
        facts = {"sweep": sweep.name, "folder": sweep.root, "runs": sweep.count}
        print_json(facts | msgspec.structs.asdict(begun))
        return 0
    for notice in begun.notices:
        note(notice)
    _describe(sweep, begun)
    for pause in pauses:
        note(pause)
    if begun.left:
        note_warm(args, sweep)
        if sys.stdout.isatty():
            print(
                f"stoker wait -P {sweep.name} waits for them; stoker results {sweep.name} shows them"
            )
    return 0


def _check(args: Args) -> None:
    if args.rerun in ("failed", "all"):
        raise UsageError(
            f"--rerun {args.rerun}: a sweep of this method goes on with new runs: raise -n, or give it"
            " another name (--name)"
        )


def _describe(sweep: Sweep, begun: SearchBegun) -> None:
    ended = f"; {begun.ended:,} have ended before" if begun.ended else ""
    if not begun.left:
        print(f"sweep {sweep.name}: nothing to run{ended} (a greater -n adds runs)")
        return
    runs = "1 run" if begun.left == 1 else f"{begun.left:,} runs"
    first = "" if begun.first is None else f", from job {begun.first} on"
    print(f"sweep {sweep.name}: {runs}, each chosen by the results so far{first}{ended}")


def dry_run(args: Args, sweep: Sweep) -> int:
    """Show what the method would choose from: its runs are not known before."""
    import itertools

    from stoker.cli.safe_text import one_line

    if args.json:
        print_json({"sweep": sweep.name, "folder": sweep.root, "runs": sweep.count})
        return 0
    print(
        f"sweep {sweep.name}: {sweep.count:,} runs, each chosen by the results so far; for example"
    )
    for run in itertools.islice(sweep, _EXAMPLES):
        print(f"  {one_line(os.fsencode(run.command), width=1000)}")
    print(f"folders: {sweep.root}")
    return 0
