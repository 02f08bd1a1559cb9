"""`stoker why`: explains the state of a job in one sentence."""

from __future__ import annotations

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import harmless, print_json
from stoker.cli.selection import IDS_HELP

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
    if args.json:
        from stoker.client.client import Client

        with Client() as client:
            print_json(client.why(args.id), indent=None, ensure_ascii=False)
        return 0
    from stoker.client.fast_json import loads
    from stoker.client.session import Session, make_target
    from stoker.home import find_home

    with Session(find_home()) as session:
        answer = session.get(make_target("why", job=args.id))
    print(harmless(loads(answer.decode())["text"]))
    return 0
