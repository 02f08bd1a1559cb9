"""`stoker help`: explains a verb or a topic."""

from __future__ import annotations

import sys
from importlib import import_module

from stoker.cli.arguments import Args, arg
from stoker.cli.help_topics import TOOLS, TOPICS, explain, find_topic
from stoker.errors import UsageError

SUMMARY = f"""\
Explain a verb, as VERB -h does, or one of these topics, with examples to paste:
{", ".join(TOPICS[: -len(TOOLS)])}.
For users of an older tool: {", ".join(TOOLS)}."""
EXAMPLES = """\
  stoker help dependencies   jobs that wait for others
  stoker help add            a verb and its options
  stoker help gpupeasy       what a user of GPUPeasy types here
"""
ARGUMENTS = (arg("topic", nargs="?", metavar="TOPIC", help="a topic or a verb"),)


def run(args: Args) -> int:
    """Print the explanation."""
    from stoker.cli.main import ALIASES, VERBS, main

    if args.topic is None:
        return main(["help"])
    topic = find_topic(args.topic)
    if topic is None and args.topic in ALIASES:
        args.topic = ALIASES[args.topic][0]
    if topic is not None:
        sys.stdout.write(explain(topic))
        if args.topic in VERBS:
            sys.stdout.write(f"\nstoker {args.topic} -h explains the verb.\n")
        return 0
    if args.topic in VERBS:
        from stoker.cli.parser import parser_of

        module = import_module(f"stoker.cli.verbs.{args.topic}")
        sys.stdout.write(parser_of(args.topic, module).format_help())
        return 0
    import difflib

    near = difflib.get_close_matches(args.topic, [*TOPICS, *VERBS], n=1)
    hint = (
        f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(TOPICS)}, and every verb"
    )
    raise UsageError(f"no topic '{args.topic}': {hint}")
