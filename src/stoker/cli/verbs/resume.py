"""`stoker resume`: lets paused jobs, or the paused queue, go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_queue_flag, add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Resume

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let paused jobs go on where they were stopped. With --queue let the queue, and the jobs without a project
if the brake paused them, start jobs again, at once; with -P a project that was paused by hand or by the
brake."""
EXAMPLES = """\
examples:
  stoker resume 12                 one job
  stoker resume --all              all that are paused
  stoker resume --queue            the queue
  stoker resume --queue -P vision  a project
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that are paused")
    add_queue_flag(parser, "the queue itself (with -P: this project)")


def run(args: argparse.Namespace) -> int:
    """Resume; 1 if one named is not paused."""
    order = Resume(**read_selection(args, "resume"), queue=args.queue)
    with Client() as client:
        changed = client.resume(order)
    if args.queue:
        print(f"{f'project {args.project}' if args.project else 'the queue'} goes on")
        return 0
    return tell(changed, "resumed", "nothing is paused")
