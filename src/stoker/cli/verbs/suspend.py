"""`stoker suspend`: moves the GPU memory of running jobs to host RAM."""

from __future__ import annotations

from stoker.cli.arguments import Args
from stoker.cli.job_changes import change_jobs, report_change
from stoker.cli.messages import note
from stoker.cli.selection import selection_arguments

SUMMARY = """\
Free the GPUs of running jobs, and lose nothing of them: the driver moves their GPU memory to host RAM and
the jobs stop. stoker resume lets them go on from the same step, on the same GPUs. The job needs no
checkpoint code. NVIDIA drivers from version 570 on can do it."""
EXAMPLES = """\
  stoker suspend 12         one job
  stoker suspend -P sweep   all of a project that run
  stoker resume 12          let it go on when its GPU is free
"""
ARGUMENTS = selection_arguments("all that run")


def run(args: Args) -> int:
    """Suspend the selected jobs; 1 if one of them cannot be suspended."""
    changed = change_jobs(args, "suspend")
    code = report_change(args, changed, "suspended", "nothing runs")
    if changed.ids and not args.json:
        note("their GPUs are free, their memory is in host RAM until stoker resume or kill")
    return code
