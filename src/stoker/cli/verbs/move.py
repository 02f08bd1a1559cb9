"""`stoker move`: puts a waiting job at another position of the queue."""

from __future__ import annotations

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import note, print_json
from stoker.cli.selection import IDS_HELP
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import MAX_POSITION, Move

SUMMARY = """\
Put a waiting job at a position of the queue: 1, the default, is the next to start. The queue's order is
priority first: past another priority the job takes that over, and it is said."""
EXAMPLES = """\
  stoker move 12        to the front
  stoker move train 5   to the fifth place
"""
ARGUMENTS = (
    arg("id", metavar="ID", help=IDS_HELP),
    arg("position", nargs="?", type=int, default=1, metavar="POSITION", help="1: next"),
    JSON,
)


def run(args: Args) -> int:
    """Move the job."""
    if not 1 <= args.position <= MAX_POSITION:
        raise UsageError(f"no position {args.position}: positions are counted from 1")
    with Client() as client:
        moved = client.move(Move(job=args.id, position=args.position))
    if args.json:
        print_json(moved)
        return 0
    print(f"job {moved.id} is at position {moved.position:,}")
    if moved.notice:
        note(moved.notice)
    return 0
