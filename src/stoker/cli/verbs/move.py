"""`stoker move`: puts a waiting job at another position of the queue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoker.cli.selection import IDS_HELP
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import MAX_POSITION, Move

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Put a waiting job at a position of the queue: 1, the default, is the next to start. The queue's order is
priority first: past another priority the job takes that over, and it is said."""
EXAMPLES = """\
examples:
  stoker move 12        to the front
  stoker move train 5   to the fifth place
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    parser.add_argument("id", metavar="ID", help=IDS_HELP)
    parser.add_argument(
        "position", nargs="?", type=int, default=1, metavar="POSITION", help="1: next"
    )


def run(args: argparse.Namespace) -> int:
    """Move it."""
    if not 1 <= args.position <= MAX_POSITION:
        raise UsageError(f"there is no position {args.position}: the first one is 1")
    with Client() as client:
        moved = client.move(Move(job=args.id, position=args.position))
    print(f"job {moved.id} is at position {moved.position:,}")
    if moved.notice:
        sys.stdout.flush()
        sys.stderr.write(f"stoker: {moved.notice}\n")
    return 0
