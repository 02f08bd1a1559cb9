"""`history`: GPU use of a job in its last minutes."""

from __future__ import annotations

from stoker.core.job import Attempt
from stoker.engine.context import QueueContext
from stoker.service.gpus import history_of
from stoker.service.job_selection import find_one
from stoker.wire import History, JobQuery


def history(context: QueueContext, query: JobQuery) -> History:
    """Return what the last attempt of a job has used of its GPUs in its last minutes.

    That is its memory on the GPU where it uses most, and its share of a GPU's time. The history is empty if
    the job used no GPU, or if too many other jobs have ended since.
    """
    number = find_one(context, query.job)
    gpu_monitor = context.engine.gpus.monitor
    if gpu_monitor is None:
        return History()
    key = Attempt(number, context.jobs.facts(number).attempt).key
    return history_of(gpu_monitor.history_of(key))
