"""`stoker release`: lets held jobs start."""

from __future__ import annotations

from stoker.cli.arguments import Args
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Let held jobs go on: they start when there is room and what else they wait for has come."""
EXAMPLES = """\
  stoker release 12          one job
  stoker release -P vision   all of a project
  stoker release --all       all that are held
"""
ARGUMENTS = selection_arguments("all that are held")


def run(args: Args) -> int:
    """Release the selected jobs; 1 if one of them is not held."""
    return report_change(args, change_jobs(args, "release"), "released", "nothing is held")
