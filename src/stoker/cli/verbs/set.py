"""`stoker set`: changes what jobs ask for."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.job_settings import NAMES, read_settings
from stoker.cli.selection import IDS_HELP, join_ids, parse_states
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import Set

if TYPE_CHECKING:
    import argparse

SUMMARY = f"""\
Change settings of jobs that have not begun:
{fill(", ".join(NAMES), 100)}.
The value none takes a setting away. Of a job that runs, name, priority, retries and timeout can be set."""
EXAMPLES = """\
examples:
  stoker set 12 priority=5             ahead of others
  stoker set 5-9 timeout=2h retries=1  several jobs, several settings
  stoker set 12 timeout=none           no time limit any more
  stoker set 12 after=7,8 begin=22:00  wait for others, and for the night
  stoker set -P vision project=ears    all of a project
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add = parser.add_argument
    add("words", nargs="*", metavar="ID|NAME=VALUE", help=f"{IDS_HELP}; and what to set")
    add("-s", "--state", action="append", default=[], metavar="STATE", help="those in this state")
    add("-P", "--project", metavar="PROJECT", help="those of this project")


def run(args: argparse.Namespace) -> int:
    """Set them; 1 if one named cannot be changed any more."""
    ids = [word for word in args.words if "=" not in word]
    pairs = [word for word in args.words if "=" in word]
    if not pairs:
        raise UsageError("what is to be set? stoker set 12 priority=5; see: stoker set -h")
    if not (ids or args.state or args.project):
        raise UsageError("which jobs? stoker set 12 priority=5; see: stoker set -h")
    order = Set(
        ids=join_ids(ids),
        states=parse_states(args.state),
        project=args.project,
        to=read_settings([tuple(pair.split("=", 1)) for pair in pairs]),
    )
    with Client() as client:
        return tell(client.set(order), "changed", "nothing to change")
