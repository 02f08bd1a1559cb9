"""`stoker start`: puts jobs before all others of the queue."""

from __future__ import annotations

from stoker.cli.arguments import Args
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Let jobs that have not begun start as the very next, as soon as GPUs are free: ahead of the queue's
order, and past holds, needs, times, pauses and the limits of their project. Nothing is pushed out."""
EXAMPLES = """\
  stoker start 12          this one next
  stoker start 5-7         these next
  stoker preempt 3 && stoker start 12    on the GPU of job 3
"""
ARGUMENTS = selection_arguments("all that have not begun")


def run(args: Args) -> int:
    """Start the selected jobs next; 1 if one of them has begun."""
    return report_change(args, change_jobs(args, "start"), "next to start:", "nothing to start")
