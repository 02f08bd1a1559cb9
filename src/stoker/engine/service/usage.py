"""`usage`: what GPUs and jobs use, now and in the last minutes."""

from __future__ import annotations

import time

from stoker.core.job import Attempt
from stoker.engine.hub import Hub
from stoker.wire import GpuCurve, JobCurve, Usage


def usage(hub: Hub) -> Usage:
    """The last look of the sampler, with what it remembers."""
    look = hub.look()
    watchman = hub.engine.watchman
    if look is None or watchman is None:
        return Usage(age_s=None, gpus=[], jobs=[])
    now = time.monotonic()
    past = watchman.histories()
    return Usage(
        age_s=now - look.at_s,
        gpus=[
            GpuCurve(
                now=use,
                past=[(now - at_s, used, busy) for at_s, used, busy in watchman.history(key)],
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
