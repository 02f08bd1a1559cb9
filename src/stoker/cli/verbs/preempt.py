"""`stoker preempt`: ends running jobs and lets them wait again."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Let running jobs make room: each gets its signal (SIGTERM, or what add --signal says), SIGKILL when its
grace time is over, and waits again behind the others of its priority. However it exits, it has not
failed. It finds what it saved in $STOKER_CHECKPOINT_DIR. With --suspend it is not ended: its GPU memory
waits in host RAM, and it goes on from the same step when it is its turn (stoker help suspend)."""
EXAMPLES = """\
  stoker preempt 12          one job
  stoker preempt -P sweep    all of a project that run
  stoker preempt -s paused   those that are paused
  stoker preempt --suspend 12  suspend it, and resume it when its GPU is free again
"""
ARGUMENTS = (
    *selection_arguments("all that run"),
    arg(
        "--suspend", action="store_true", help="move their GPU memory to host RAM; nothing is lost"
    ),
)


def run(args: Args) -> int:
    """Preempt the selected jobs; 1 if one of them does not run."""
    changed = change_jobs(args, "preempt", suspend=args.suspend)
    return report_change(args, changed, "making room:", "nothing runs")
