"""`stoker why`: the reason why a job stands where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.selection import IDS_HELP
from stoker.cli.tables import harmless
from stoker.client.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "Tell in one sentence why a job waits, was skipped, failed, or where it runs."
EXAMPLES = """\
examples:
  stoker why 12          one job
  stoker why @           the last one
  stoker why @ --json    for scripts
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    parser.add_argument("id", metavar="ID", help=IDS_HELP)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the sentence."""
    with Client() as client:
        answer = client.why(args.id)
    if args.json:
        import json

        import msgspec

        print(json.dumps(msgspec.to_builtins(answer), ensure_ascii=False))
    else:
        print(harmless(answer.text))
    return 0
