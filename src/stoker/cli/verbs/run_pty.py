"""`stoker run --pty`: one command in this terminal, on leased GPUs."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.interactive_job import limits_of, refuse_without_terminal, run_in_terminal
from stoker.cli.verbs.shell import LIMITS
from stoker.errors import UsageError

SUMMARY = """\
Run one command in this terminal, on leased GPUs: colours, keys, Ctrl-C and the size of the window reach
it as without Stoker. It is a job of the queue. The exit code is that of the command."""
EXAMPLES = """\
  stoker run --pty -- python -m pdb train.py       a debugger on a GPU
  stoker run --pty -g 2 -t 1h -- python chat.py    two GPUs, for an hour at most
"""
ARGUMENTS = (
    arg("--pty", action="store_true", help="run one command in this terminal"),
    arg("-g", "--gpus", default="1", metavar="N", help="how many GPUs it needs (default: 1)"),
    arg("-t", "--timeout", metavar="TIME", help="end it after this long: 90s, 2h (default: never)"),
    arg(
        "--idle",
        metavar="TIME",
        help="end it after this long without GPU use and typing: 30m (default: never)",
    ),
    *LIMITS,
    arg("command", nargs="...", metavar="CMD", help="the command and its arguments"),
)


def is_asked_for(words: list[str]) -> bool:
    """Whether the words of `stoker run` have --pty before the command."""
    options = words[: words.index("--")] if "--" in words else words
    return "--pty" in options


def run(args: Args) -> int:
    """Run the command; returns its exit code."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError("no command was given: stoker run --pty -- python train.py")
    refuse_without_terminal("stoker add --follow CMD")
    if not args.gpus.isdecimal() or args.gpus == "0":
        raise UsageError(f"-g {args.gpus}: with --pty write how many GPUs, 1 or more")
    args.gpus = int(args.gpus)
    args.time_limit = args.timeout
    return run_in_terminal(words, {**limits_of(args), "name": args.name or "run"})
