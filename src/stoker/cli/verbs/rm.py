"""`stoker rm`: removes jobs and their logs."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Forget jobs and delete their logs (those in Stoker's own folder; a file named with -o stays). A job
that runs is removed only with --kill. Ids are never used again."""
EXAMPLES = """\
  stoker rm 12            one that has ended, or that waits
  stoker rm 1-9 --kill    also those that run: they are ended first
  stoker rm -s failed     all that failed
  stoker rm --all         everything that has ended
"""
ARGUMENTS = (
    *selection_arguments("all that have ended; with --kill really all"),
    arg("--kill", action="store_true", help="end those that run first"),
)


def run(args: Args) -> int:
    """Remove the selected jobs; 1 if one of them still runs."""
    changed = change_jobs(args, "rm", kill=args.kill)
    return report_change(args, changed, "removed", "nothing to remove")
