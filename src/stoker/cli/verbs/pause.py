"""`stoker pause`: stops running jobs, or lets the queue start no more jobs."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.messages import note
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Stop running jobs where they are (SIGSTOP to their whole trees); they keep their GPUs and the memory on
them, and their time limits wait. With --queue start nothing more, of all or of one project: what runs
goes on."""
EXAMPLES = """\
  stoker pause 12                 stop one job where it is
  stoker pause -P vision          all of a project that run
  stoker pause --queue            start nothing more, until stoker resume --queue
  stoker pause --queue -P vision  start nothing more of a project
"""
ARGUMENTS = (
    *selection_arguments("all that run"),
    arg(
        "--queue",
        action="store_true",
        help="start nothing more (with -P: of this project); what runs goes on",
    ),
)


def run(args: Args) -> int:
    """Pause the selected jobs, or the queue; 1 if one of the jobs does not run."""
    changed = change_jobs(args, "pause", queue=args.queue)
    if args.queue and not args.json:
        what = f"project {args.project}" if args.project else "the queue"
        option = f" -P {args.project}" if args.project else ""
        print(
            f"{what} is paused: what runs goes on, nothing more starts until"
            f" stoker resume --queue{option}"
        )
        return 0
    code = report_change(args, changed, "paused", "nothing runs")
    if changed.ids and not args.json:
        note("GPUs and their memory stay taken until stoker resume or kill")
    return code
