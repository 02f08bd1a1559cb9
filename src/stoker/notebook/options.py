"""The options of `%%stoker`: those of `stoker add` that matter in a notebook, and variables."""

from __future__ import annotations

import shlex
from typing import Any

from stoker.cli.add_options import read_options
from stoker.cli.arguments import Args, arg
from stoker.cli.parser import Parser
from stoker.core.durations import parse_duration
from stoker.errors import UsageError

SUMMARY = "Run this cell as a job of the queue; show its output and the value of its last line."
EXAMPLES = """\
examples:
  %%stoker -g 1 -t 2h
  %%stoker -g 1 -i data,lr -o model    send data and lr, get model back
"""
_QUEUED = ("gpu_mem", "cpus", "mem", "share", "name", "project", "priority")
ARGUMENTS = (
    arg("-g", "--gpus", type=int, default=1, metavar="N", help="GPUs it needs (default: 1)"),
    arg("-i", "--input", action="append", metavar="NAMES", help="variables to send: data,lr"),
    arg("-o", "--output", action="append", metavar="NAMES", help="variables to get back"),
    arg("-t", "--timeout", metavar="TIME", help="end it after this long: 90s, 2h"),
    arg("--gpu-mem", metavar="MEM", help="GPU memory it needs: 10G"),
    arg("--cpus", type=int, metavar="N", help="CPUs to set aside for it"),
    arg("--mem", metavar="MEM", help="RAM to set aside for it: 32G"),
    arg("--share", metavar="HOW", help="share its GPU: auto, always:N (default: never)"),
    arg("-N", "--name", metavar="NAME", help="its name"),
    arg("-P", "--project", metavar="P", help="the project it belongs to"),
    arg("-p", "--priority", type=int, metavar="N", help="higher runs first (default: 0)"),
)


def read_line(line: str) -> Args:
    """Read the words behind `%%stoker`; raises UsageError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%stoker {line}: {error}") from None
    args = Parser("%%stoker", SUMMARY, EXAMPLES, ARGUMENTS).read(words)
    if args.gpus < 0:
        raise UsageError(f"-g {args.gpus}: write 0 or more")
    return args


def job_options(args: Args) -> dict[str, Any]:
    """Return the fields of a submission for the options."""
    options = read_options({name: getattr(args, name) for name in _QUEUED})
    if args.timeout is not None:
        options["timeout_s"] = parse_duration(args.timeout)
    return {"gpus": args.gpus, **options}


def read_names(given: list[str] | None) -> list[str]:
    """Return the names of variables: `data,lr`."""
    names = [name.strip() for text in given or () for name in text.split(",") if name.strip()]
    wrong = [name for name in names if not name.isidentifier()]
    if wrong:
        raise UsageError(f"{wrong[0]!r} is not the name of a variable")
    return list(dict.fromkeys(names))
