"""`stoker retry`: lets jobs run once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.change_report import tell
from stoker.cli.selection import add_selection, read_selection
from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.wire import Retry

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let jobs that have ended run once more, with the same command, folder and environment, under the same
id. A job added with --snapshot runs from the same copy again; --fresh takes the folder as it is now."""
EXAMPLES = """\
examples:
  stoker retry 12                        one job
  stoker retry -s failed                 all that failed
  stoker retry --failed                  all that did not succeed
  stoker retry --failed 'out of memory'  those of them with such a reason
  stoker retry 12 --fresh                from the working tree instead of its snapshot
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that failed, were killed or are lost")
    parser.add_argument(
        "--failed",
        nargs="?",
        const="",
        metavar="REASON",
        help="all that did not succeed; with REASON those whose reason holds this text",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="from the working tree, not the snapshot"
    )


def run(args: argparse.Namespace) -> int:
    """Queue them again; 1 if one named is not over."""
    if args.failed is not None and (args.ids or args.all):
        raise UsageError("--failed is for all that did not succeed: leave the ids and --all out")
    args.all = args.all or args.failed is not None
    order = Retry(**read_selection(args, "retry"), fresh=args.fresh, reason=args.failed or None)
    with Client() as client:
        return tell(client.retry(order), "queued again", "nothing to retry")
