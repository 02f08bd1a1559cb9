"""`stoker shell`: a shell in this terminal, on leased GPUs."""

from __future__ import annotations

import os

from stoker.cli.arguments import NAME_MISTAKES, Args, arg
from stoker.cli.interactive_job import (
    DEFAULT_FOR,
    DEFAULT_IDLE,
    limits_of,
    refuse_without_terminal,
    run_in_terminal,
)
from stoker.errors import UsageError

SUMMARY = """\
Open a shell in this terminal, on leased GPUs. It is a job of the queue: it starts as the next one, is
ended with all its processes at its time limit, and gives its GPUs back when it is idle."""
EXAMPLES = """\
  stoker shell                    one GPU, for 8 hours at most
  stoker shell -g 2 --for 2h      two GPUs, for two hours
  stoker shell --idle never       never ended for being idle
  stoker shell --shell zsh        another shell than your own
"""
LIMITS = (
    arg("-p", "--priority", type=int, metavar="N", help="as of stoker add (default: the next)"),
    arg("-N", "--name", metavar="NAME", help="its name in stoker ls"),
    arg("-P", "--project", metavar="P", help="the project it belongs to"),
)
TIMES = (
    arg("-g", "--gpus", type=int, default=1, metavar="N", help="GPUs (default: 1; 0: none)"),
    arg(
        "--for",
        default=DEFAULT_FOR,
        metavar="TIME",
        help=f"end it after this long, or never (default: {DEFAULT_FOR})",
    ),
    arg(
        "--idle",
        default=DEFAULT_IDLE,
        metavar="TIME",
        help=f"end it after this long without GPU use and typing, or never (default: {DEFAULT_IDLE})",
    ),
)
ARGUMENTS = (
    *TIMES,
    *LIMITS,
    arg("--shell", metavar="SH", help="the shell (default: $SHELL, else your login shell)"),
)
MISTAKES = NAME_MISTAKES


def run(args: Args) -> int:
    """Run the shell; returns its exit code."""
    refuse_without_terminal("a command: stoker add --follow CMD")
    args.time_limit = getattr(args, "for")
    options = {**limits_of(args), "name": args.name or "shell"}
    return run_in_terminal([find_shell(args.shell)], options)


def find_shell(named: str | None) -> str:
    """Return the path of the named shell, of $SHELL, or of the login shell."""
    from stoker.executors.command import resolve_shell

    if named is not None:
        return resolve_shell(named)
    try:
        return resolve_shell(os.environ.get("SHELL") or "login")
    except UsageError:
        return resolve_shell(None)
