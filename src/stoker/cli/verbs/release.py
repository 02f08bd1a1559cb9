"""`stoker release`: lets held jobs go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.wire import Release

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let held jobs go on: they start when there is room and what else they wait for has come."""
EXAMPLES = """\
examples:
  stoker release 12          one job
  stoker release -P vision   all of a project
  stoker release --all       all that are held
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that are held")


def run(args: argparse.Namespace) -> int:
    """Release them; 1 if one named is not held."""
    order = Release(**read_selection(args, "release"))
    with Client() as client:
        return tell(client.release(order), "released", "nothing is held")
