"""`stoker kill`: ends jobs."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments
from stoker.core.durations import parse_span

SUMMARY = """\
End jobs: those that wait do not start, those that run get SIGTERM, whole process trees, and SIGKILL
when the grace time is over."""
EXAMPLES = """\
  stoker kill 12                 one job
  stoker kill 1 2 5-9            several
  stoker kill @                  the last one
  stoker kill -s waiting         all that wait
  stoker kill -P vision          all of a project
  stoker kill --all --grace 1m   everything, with a minute to save its work
"""
ARGUMENTS = (
    *selection_arguments("all that run or wait"),
    arg(
        "--grace",
        metavar="TIME",
        help="from TERM to KILL (default: as it was added, 10s; 0: at once)",
    ),
)


def run(args: Args) -> int:
    """End the selected jobs; 1 if one of them has ended already."""
    grace_s = None if args.grace is None else parse_span(args.grace)
    changed = change_jobs(args, "kill", grace_s=grace_s)
    return report_change(args, changed, "ending", "nothing to end")
