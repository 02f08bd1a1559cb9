"""`stoker kill`: ends jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.core.durations import parse_span
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
        metavar="TIME",
        help="from TERM to KILL (default: as it was added, 10s; 0: at once)",
    )


def run(args: argparse.Namespace) -> int:
    """End them; 1 if one named was over already."""
    grace_s = None if args.grace is None else parse_span(args.grace)
    order = Kill(**read_selection(args, "kill"), grace_s=grace_s)
    with Client() as client:
        return tell(client.kill(order), "ending", "nothing to end")
