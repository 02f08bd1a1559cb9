"""`stoker rm`: forgets jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Remove

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Forget jobs and delete their logs (those in Stoker's own folder; a file named with -o stays). A job
that runs is removed only with --kill. Ids are never used again."""
EXAMPLES = """\
examples:
  stoker rm 12            one that has ended, or that waits
  stoker rm 1-9 --kill    also those that run: they are ended first
  stoker rm -s failed     all that failed
  stoker rm --all         everything that has ended
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that have ended; with --kill really all")
    parser.add_argument("--kill", action="store_true", help="end those that run first")


def run(args: argparse.Namespace) -> int:
    """Remove them; 1 if one named still runs."""
    order = Remove(**read_selection(args, "rm"), kill=args.kill)
    with Client() as client:
        return tell(client.rm(order), "removed", "nothing to remove")
