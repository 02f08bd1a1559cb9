"""`history`: what a job has used of its GPUs in its last minutes."""

from __future__ import annotations

from stoker.core.job import Attempt
from stoker.engine.context import QueueContext
from stoker.service.gpus import history_of
from stoker.service.job_selection import find_one
from stoker.wire import History


def history(context: QueueContext, job: str) -> History:
    """Its memory on the GPU where it holds most, and its share of a GPU's time, in its last attempt.

    Nothing if it has not been on a GPU, or if too many others have ended since.
    """
    number = find_one(context, job)
    gpu_monitor = context.engine.gpu_monitor
    if gpu_monitor is None:
        return History()
    key = Attempt(number, context.jobs.facts(number).attempt).key
    return history_of(gpu_monitor.history_of(key))
