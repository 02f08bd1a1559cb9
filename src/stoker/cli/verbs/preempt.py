"""`stoker preempt`: lets running jobs make room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Preempt

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let running jobs make room: each gets its signal (SIGTERM, or what add --signal says), SIGKILL when its
grace time is over, and waits again behind the others of its priority. However it exits, it has not
failed. It finds what it saved in $STOKER_CHECKPOINT_DIR."""
EXAMPLES = """\
examples:
  stoker preempt 12          one job
  stoker preempt -P sweep    all of a project that run
  stoker preempt -s paused   those that are paused
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that run")


def run(args: argparse.Namespace) -> int:
    """Preempt them; 1 if one named does not run."""
    order = Preempt(**read_selection(args, "preempt"))
    with Client() as client:
        return tell(client.preempt(order), "making room:", "nothing runs")
