"""`stoker retry`: lets jobs run once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.changes import tell
from stoker.cli.selection import add_selection, join_ids, parse_states, require_some
from stoker.client.client import Client
from stoker.wire import Retry

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Let jobs that have ended run once more, with the same command, folder and environment, under the same
id. A job added with --snapshot runs from the same copy again; --fresh takes the folder as it is now."""
EXAMPLES = """\
examples:
  stoker retry 12            one job
  stoker retry -s failed     all that failed
  stoker retry --all         all that did not succeed
  stoker retry 12 --fresh    from the working tree instead of its snapshot
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add_selection(parser, all_help="all that failed, were killed or are lost")
    parser.add_argument(
        "--fresh", action="store_true", help="from the working tree, not the snapshot"
    )


def run(args: argparse.Namespace) -> int:
    """Queue them again; 1 if one named is not over."""
    require_some(args, "retry")
    order = Retry(
        ids=join_ids(args.ids),
        states=parse_states(args.state),
        project=args.project,
        all=args.all,
        fresh=args.fresh,
    )
    with Client() as client:
        return tell(client.retry(order), "queued again", "nothing to retry")
