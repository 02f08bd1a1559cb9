"""`stoker hold`: keeps jobs from starting until they are released."""

from __future__ import annotations

from stoker.cli.arguments import Args
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Keep jobs from starting until stoker release lets them go on. What runs is not touched: stoker pause
stops it where it is."""
EXAMPLES = """\
  stoker hold 12             one job that has not begun
  stoker hold 5-9,train      several
  stoker hold -P vision      all of a project
  stoker add --hold CMD      add a job that is held from the beginning
"""
ARGUMENTS = selection_arguments("all that have not begun")


def run(args: Args) -> int:
    """Hold the selected jobs; 1 if one of them has begun."""
    return report_change(args, change_jobs(args, "hold"), "held", "nothing to hold")
