"""`history`: what a job has used of its GPUs in its last minutes."""

from __future__ import annotations

from stoker.core.job import Attempt
from stoker.engine.hub import Hub
from stoker.engine.service.gpus import history_of
from stoker.engine.service.select import find_one
from stoker.wire import History


def history(hub: Hub, job: str) -> History:
    """Its memory on the GPU where it holds most, and its share of a GPU's time, in its last attempt.

    Nothing if it has not been on a GPU, or if too many others have ended since.
    """
    number = find_one(hub, job)
    watchman = hub.engine.watchman
    if watchman is None:
        return History()
    key = Attempt(number, hub.jobs.facts(number).attempt).key
    return history_of(watchman.history_of(key))
