"""`stoker retry`: runs jobs that have ended again."""

from __future__ import annotations

from stoker.cli.arguments import Args, arg
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.selection import selection_arguments
from stoker.errors import UsageError

SUMMARY = """\
Let jobs that have ended run once more, with the same command, folder and environment, under the same
id. A job added with --snapshot runs from the same copy again; --fresh takes the folder as it is now."""
EXAMPLES = """\
  stoker retry 12                        one job
  stoker retry -s failed                 all that failed
  stoker retry --failed                  all that did not succeed
  stoker retry --failed 'out of memory'  those of them with such a reason
  stoker retry 12 --fresh                from the working tree instead of its snapshot
"""
ARGUMENTS = (
    *selection_arguments("all that failed, were killed or are lost"),
    arg(
        "--failed",
        nargs="?",
        const="",
        metavar="REASON",
        help="all that did not succeed; with REASON those whose reason holds this text",
    ),
    arg("--fresh", action="store_true", help="from the working tree, not the snapshot"),
)


def run(args: Args) -> int:
    """Queue the selected jobs again; 1 if one of them has not ended."""
    if args.failed is not None:
        if args.ids or args.all:
            raise UsageError(
                "--failed selects all jobs that did not succeed: leave out IDS and --all"
            )
        args.all = True
    changed = change_jobs(args, "retry", fresh=args.fresh, reason=args.failed or None)
    return report_change(args, changed, "queued again", "nothing to retry")
