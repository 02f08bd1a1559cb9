"""`usage`: GPU use of all jobs."""

from __future__ import annotations

import time

from stoker.core.job import Attempt
from stoker.engine.context import QueueContext
from stoker.wire import GpuCurve, JobCurve, Usage


def usage(context: QueueContext) -> Usage:
    """Return what GPUs and jobs use, now and in the last minutes."""
    look = context.look()
    gpu_monitor = context.engine.gpus.monitor
    if look is None or gpu_monitor is None:
        return Usage(age_s=None, gpus=[], jobs=[])
    now = time.monotonic()
    past = gpu_monitor.histories()
    return Usage(
        age_s=now - look.at_s,
        gpus=[
            GpuCurve(
                now=use,
                past=[(now - at_s, used, busy) for at_s, used, busy in gpu_monitor.history(key)],
            )
            for key, use in look.gpus.items()
        ],
        jobs=[
            JobCurve(
                id=Attempt.from_key(key).job,
                now=job,
                past=[(now - at_s, used, share) for at_s, used, share in past.get(key, [])],
            )
            for key, job in look.jobs.items()
        ],
    )
