"""`usage`: what a job that runs uses of its GPUs, over the last minutes."""

from __future__ import annotations

from stoker.engine.hub import Hub
from stoker.engine.service.gpus import history_of
from stoker.engine.service.select import find_one
from stoker.wire import History


def usage(hub: Hub, job: str) -> History:
    """The last minutes of a job's first GPU, which it has to itself; nothing if it does not run."""
    running = hub.running(find_one(hub, job))
    if running is None or hub.watchman is None or running.started_at_us is None:
        return History()
    keys = [key for slot in running.slots for key in slot.keys]
    began = running.started_at_us / 1e6
    samples = hub.watchman.history(keys[0]) if keys else []
    return history_of([sample for sample in samples if sample.at >= began])
