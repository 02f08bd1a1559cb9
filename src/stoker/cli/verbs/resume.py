"""`stoker resume`: continues paused and suspended jobs, or the paused queue."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Let paused and suspended jobs go on where they were stopped. A suspended job waits for its GPUs in the
order of the queue. With --queue let the queue, and the jobs without a project
if the brake paused them, start jobs again, at once; with -P a project that was paused by hand or by the
brake."""
EXAMPLES = """\
  stoker resume 12                 one job
  stoker resume --all              all that are paused or suspended
  stoker resume --queue            the queue
  stoker resume --queue -P vision  a project
"""
ARGUMENTS = (
    *selection_arguments("all that are paused or suspended"),
    arg("--queue", action="store_true", help="the queue itself (with -P: this project)"),
)


def run(args: Args) -> int:
    """Resume the selected jobs, or the queue; 1 if one of the jobs is not stopped."""
    changed = change_jobs(args, "resume", queue=args.queue)
    if args.queue and not args.json:
        print(f"{f'project {args.project}' if args.project else 'the queue'} goes on")
        return 0
    return report_change(args, changed, "resumed", "nothing is paused or suspended")
