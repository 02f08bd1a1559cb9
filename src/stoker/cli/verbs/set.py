"""`stoker set`: changes settings of jobs."""

from __future__ import annotations

from textwrap import fill

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.job_changes import report_change
from stoker.cli.job_settings import NAMES, read_settings
from stoker.cli.selection import FILTERS, IDS_HELP, join_ids, parse_states
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import Set

SUMMARY = f"""\
Change settings of jobs that have not begun:
{fill(", ".join(NAMES), 100)}.
The value none takes a setting away. Of a job that runs, name, priority, retries and timeout can be set."""
EXAMPLES = """\
  stoker set 12 priority=5             ahead of others
  stoker set 5-9 timeout=2h retries=1  several jobs, several settings
  stoker set 12 timeout=none           no time limit any more
  stoker set 12 after=7,8 begin=22:00  wait for others, and for the night
  stoker set -P vision project=ears    all of a project
"""
ARGUMENTS = (
    arg("words", nargs="*", metavar="ID|NAME=VALUE", help=f"{IDS_HELP}; and what to set"),
    *FILTERS,
    JSON,
)


def run(args: Args) -> int:
    """Change the selected jobs; 1 if one of them cannot be changed any more."""
    ids = [word for word in args.words if "=" not in word]
    pairs = [word for word in args.words if "=" in word]
    if not pairs:
        raise UsageError("no setting was given: stoker set 12 priority=5; see: stoker set -h")
    if not (ids or args.state or args.project):
        raise UsageError("which jobs? stoker set 12 priority=5; see: stoker set -h")
    order = Set(
        ids=join_ids(ids),
        states=parse_states(args.state),
        project=args.project,
        to=read_settings([tuple(pair.split("=", 1)) for pair in pairs]),
    )
    with Client() as client:
        return report_change(args, client.set(order), "changed", "nothing to change")
