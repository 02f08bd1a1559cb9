"""`stoker start`: lets jobs start as the very next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Start

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let jobs that have not begun start as the very next, as soon as GPUs are free: ahead of the queue's
order, and past holds, needs, times, pauses and the limits of their project. Nothing is pushed out."""
EXAMPLES = """\
examples:
  stoker start 12          this one next
  stoker start 5-7         these next
  stoker preempt 3 && stoker start 12    on the GPU of job 3
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that have not begun")


def run(args: argparse.Namespace) -> int:
    """Start them; 1 if one named has begun."""
    order = Start(**read_selection(args, "start"))
    with Client() as client:
        return tell(client.start(order), "next to start:", "nothing to start")
