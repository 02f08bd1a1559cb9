"""`stoker hold`: lets jobs wait until they are released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Hold

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Keep jobs from starting until stoker release lets them go on. What runs is not touched: stoker pause
stops it where it is."""
EXAMPLES = """\
examples:
  stoker hold 12             one job that has not begun
  stoker hold 5-9,train      several
  stoker hold -P vision      all of a project
  stoker add --hold CMD      add a job that is held from the beginning
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that have not begun")


def run(args: argparse.Namespace) -> int:
    """Hold them; 1 if one named has begun."""
    order = Hold(**read_selection(args, "hold"))
    with Client() as client:
        return tell(client.hold(order), "held", "nothing to hold")
