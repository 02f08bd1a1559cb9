"""`stoker why`: explains the state of a job in one sentence."""

from __future__ import annotations

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import print_json
from stoker.cli.selection import IDS_HELP
from stoker.cli.tables import harmless
from stoker.client.client import Client

SUMMARY = "Tell in one sentence why a job waits, was skipped, failed, or where it runs."
EXAMPLES = """\
  stoker why 12          one job
  stoker why @           the last one
  stoker why @ --json    for scripts
"""
ARGUMENTS = (
    arg("id", metavar="ID", help=IDS_HELP),
    JSON,
)


def run(args: Args) -> int:
    """Print the explanation."""
    with Client() as client:
        answer = client.why(args.id)
    if args.json:
        print_json(answer, indent=None, ensure_ascii=False)
    else:
        print(harmless(answer.text))
    return 0
