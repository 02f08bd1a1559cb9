"""`stoker kill`: ends jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.changes import tell
from stoker.cli.durations import parse_duration
from stoker.cli.selection import add_selection, join_ids, parse_states, require_some
from stoker.client.client import Client
from stoker.wire import Kill

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
End jobs: those that wait do not start, those that run get SIGTERM, whole process trees, and SIGKILL
when the grace time is over."""
EXAMPLES = """\
examples:
  stoker kill 12                 one job
  stoker kill 1 2 5-9            several
  stoker kill @                  the last one
  stoker kill -s waiting         all that wait
  stoker kill -P vision          all of a project
  stoker kill --all --grace 1m   everything, with a minute to save its work
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that run or wait")
    parser.add_argument(
        "--grace",
        default="10s",
        metavar="TIME",
        help="from TERM to KILL (default: 10s; 0: at once)",
    )


def run(args: argparse.Namespace) -> int:
    """End them; 1 if one named was over already."""
    require_some(args, "kill")
    order = Kill(
        ids=join_ids(args.ids),
        states=parse_states(args.state),
        project=args.project,
        all=args.all,
        grace_s=0.0 if args.grace in ("0", "0s") else parse_duration(args.grace),
    )
    with Client() as client:
        return tell(client.kill(order), "ending", "nothing to end")
