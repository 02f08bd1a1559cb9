"""`stoker ls`: lists jobs."""

from __future__ import annotations

import os
import sys
import time

from stoker.cli.arguments import Args, arg
from stoker.cli.job_overview import LINES, JobOverview, fetch_overview
from stoker.cli.job_table import COLUMNS, rows_of
from stoker.cli.pauses import describe_pauses, paused_projects
from stoker.cli.selection import read_selection, selection_arguments
from stoker.cli.tables import print_line, print_table
from stoker.client.light_client import LightClient, Selection
from stoker.client.node_role import head_of
from stoker.client.transport import NoDaemonError
from stoker.core.durations import format_left
from stoker.errors import NotFoundError, UsageError
from stoker.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.wire import Status

SUMMARY = """\
List jobs: what runs, what waits in its order, and what ended last. Without IDS, STATE or -a a long
list is cut, and its last line tells what is left out."""
EXAMPLES = """\
  stoker ls                   what runs, what waits next, what ended last
  stoker ls --watch           the same, always up to date; Ctrl-C ends it
  stoker ls -s failed         what failed
  stoker ls -P vision -a      everything of a project
  stoker ls 5-9,train         some jobs
  stoker ls --json            all jobs, for scripts: [] where there is none
"""
ARGUMENTS = (
    *selection_arguments("all of them, however many", ("-a", "--all")),
    arg("-w", "--watch", action="store_true", help="keep the list up to date"),
)


def run(args: Args) -> int:
    """Print the list."""
    selection = Selection(**{**read_selection(args), "all": False})  # -a is for the display
    if args.watch:
        if args.json or not sys.stdout.isatty():
            raise UsageError("--watch needs a terminal: use stoker wait in scripts")
        from stoker.cli.ls_watch import watch

        return watch(selection)
    home = find_home()
    try:
        _list(home, args, selection)
    except NoDaemonError:
        # A queue that never existed is empty, but that of a node is elsewhere.
        is_known = os.path.exists(os.path.join(home, "stoker.db"))
        if selection.ids or is_known or head_of(home) is not None:
            raise
        if selection.project is not None:
            raise NotFoundError(f"no project {selection.project!r}; no job was added yet") from None
        if args.json:
            print("[]")
        else:
            _print(JobOverview([], []), selection, None)
    return 0


def _list(home: str, args: Args, selection: Selection) -> None:
    if args.json:
        _print_json(home, selection)
        return
    with LightClient(home) as listing:
        if args.all or selection.ids:
            found = JobOverview(list(listing.jobs(selection)), [])
        else:
            lines = os.get_terminal_size().lines - 3 if sys.stdout.isatty() else LINES
            found = fetch_overview(listing, selection, lines)
        _print(found, selection, listing.status())


def _print(listing: JobOverview, selection: Selection, status: Status | None) -> None:
    if listing.jobs:
        paused = paused_projects(status) if status is not None else {}
        rows, titles = rows_of(listing.jobs, time.time(), paused, selection.project)
        print_table(COLUMNS, rows, titles)
    if listing.left_out:
        _remark(f"… {', '.join(listing.left_out)}: -a shows all")
    elif not listing.jobs and (selection.states or selection.project):
        _remark("no job matches: stoker ls -a shows all")
    elif not listing.jobs:
        _remark("no job yet: stoker add python train.py")
    if status is None:
        return
    for pause in describe_pauses(status, selection.project):
        _remark(pause, "bold yellow")
    if status.eta_s and sys.stdout.isatty():
        _remark(f"the whole queue: {format_left(status.eta_s)}")


def _remark(text: str, style: str = "dim") -> None:
    """Print a remark: below the table on a terminal, else on standard error."""
    if sys.stdout.isatty():
        print_line((text, style))
    else:
        sys.stderr.write(f"{text}\n")


def _print_json(home: str, selection: Selection) -> None:
    import msgspec

    from stoker.client.client import Client

    # Job by job: there may be a million jobs.
    encode = msgspec.json.Encoder().encode
    opening = "[\n"
    with Client(home) as client:
        for job in client.jobs(selection):
            sys.stdout.write(f"{opening}{encode(job).decode()}")
            opening = ",\n"
    sys.stdout.write("[]\n" if opening == "[\n" else "\n]\n")
