"""`stoker help`: explains a verb or a topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoker.cli.help_topics import TOOLS, TOPICS, explain, find_topic
from stoker.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = f"""\
Explain a verb, as VERB -h does, or one of these topics, with examples to paste:
{", ".join(TOPICS[: -len(TOOLS)])}.
For users of an older tool: {", ".join(TOOLS)}."""
EXAMPLES = """\
examples:
  stoker help dependencies   jobs that wait for others
  stoker help add            a verb and its options
  stoker help gpupeasy       what a user of GPUPeasy types here
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="a topic or a verb")


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    from stoker.cli.main import VERBS, main

    if args.topic is None:
        return main(["help"])
    topic = find_topic(args.topic)
    if topic is not None:
        sys.stdout.write(explain(topic))
        if args.topic in VERBS:
            sys.stdout.write(f"\nstoker {args.topic} -h explains the verb.\n")
        return 0
    if args.topic in VERBS:
        return _explain_verb(args.topic)
    import difflib

    known = [*TOPICS, *VERBS]
    near = difflib.get_close_matches(args.topic, known, n=1)
    hint = (
        f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(TOPICS)}, and every verb"
    )
    raise UsageError(f"there is nothing about '{args.topic}': {hint}")


def _explain_verb(verb: str) -> int:
    from importlib import import_module

    from stoker.cli.parser import Parser

    module = import_module(f"stoker.cli.verbs.{verb}")
    parser = Parser(f"stoker {verb}", module.SUMMARY, module.EXAMPLES)
    module.configure(parser)
    sys.stdout.write(parser.format_help())
    return 0
