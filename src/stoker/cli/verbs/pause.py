"""`stoker pause`: stops jobs where they are, or lets the queue start nothing more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_queue_flag, add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Pause

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Stop running jobs where they are (SIGSTOP to their whole trees); they keep their GPUs and the memory on
them, and their time limits wait. With --queue start nothing more, of all or of one project: what runs
goes on."""
EXAMPLES = """\
examples:
  stoker pause 12                 stop one job where it is
  stoker pause -P vision          all of a project that run
  stoker pause --queue            start nothing more, until stoker resume --queue
  stoker pause --queue -P vision  start nothing more of a project
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that run")
    add_queue_flag(parser, "start nothing more (with -P: of this project); what runs goes on")


def run(args: argparse.Namespace) -> int:
    """Pause; 1 if one named does not run."""
    order = Pause(**read_selection(args, "pause"), queue=args.queue)
    with Client() as client:
        changed = client.pause(order)
    if args.queue:
        what = f"project {args.project}" if args.project else "the queue"
        undo = " ".join(["stoker resume --queue", *(["-P", args.project] if args.project else [])])
        print(f"{what} is paused: what runs goes on, nothing more starts until {undo}")
        return 0
    code = tell(changed, "paused", "nothing runs")
    if changed.ids:
        sys.stderr.write("stoker: GPUs and their memory stay taken until stoker resume or kill\n")
    return code
