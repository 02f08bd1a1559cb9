"""`stoker mcp`: lets coding agents use the queue, over the Model Context Protocol."""

from __future__ import annotations

import math
import os
import sys

from stoker.cli.arguments import Args, arg
from stoker.errors import StokerError, UsageError

SUMMARY = """\
Let a coding agent use the queue: an MCP server over standard input and output, which the agent's program
starts. Agents plan jobs and submit them, wait, read logs and results, and end jobs of their own project.
Jobs run in the folder and environment of this command. The limits count jobs that are in the queue
already, so a new session does not begin at zero."""
EXAMPLES = """\
  claude mcp add stoker -- stoker mcp          for Claude Code; other programs take the same command
  stoker mcp --read-only                       look, but submit and end nothing
  stoker mcp --gpu-hours 100 --jobs-per-hour 200
  stoker mcp -P ann-agent                      its jobs have this project
"""
ARGUMENTS = (
    arg("--read-only", action="store_true", help="without the tools that submit and end jobs"),
    arg(
        "-P",
        "--project",
        default="agent",
        metavar="NAME",
        help="the project of the agent's jobs (default: agent)",
    ),
    arg(
        "--jobs-per-hour",
        type=int,
        default=60,
        metavar="N",
        help="the most jobs that it may submit within an hour (default: 60)",
    ),
    arg(
        "--gpu-hours",
        type=float,
        default=48.0,
        metavar="N",
        help="the most GPU-hours of jobs that it may submit within a day (default: 48)",
    ),
    arg("-C", "--chdir", metavar="DIR", help="the folder to run jobs in (default: this one)"),
)


def run(args: Args) -> int:
    """Serve until the client goes."""
    from stoker.core.selector import check_name
    from stoker.mcp_server.limits import Limits
    from stoker.submit_context import find_folder

    if sys.stdin.isatty():
        raise UsageError(
            "stoker mcp talks to a program, not to a terminal: claude mcp add stoker -- stoker mcp"
        )
    check_name("the project", args.project)
    if args.jobs_per_hour < 1:
        raise UsageError(f"--jobs-per-hour {args.jobs_per_hour}: write 1 or more")
    if not (math.isfinite(args.gpu_hours) and args.gpu_hours >= 0):
        raise UsageError(f"--gpu-hours {args.gpu_hours}: write 0 or more")
    os.chdir(find_folder(args.chdir))
    try:
        from stoker.mcp_server.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise StokerError("stoker mcp needs the MCP SDK: pip install 'stoker[mcp]'") from None
    serve(args.project, Limits(args.jobs_per_hour, args.gpu_hours), read_only=args.read_only)
    return 0
