"""`history`: what a job that runs has used of its GPUs in the last minutes."""

from __future__ import annotations

from stoker.engine.hub import Hub
from stoker.engine.service.gpus import history_of
from stoker.engine.service.select import find_one
from stoker.wire import History


def history(hub: Hub, job: str) -> History:
    """Its memory on the GPU where it holds most, and its share of a GPU's time; nothing if it is over."""
    running = hub.running(find_one(hub, job))
    watchman = hub.engine.watchman
    if running is None or watchman is None:
        return History()
    return history_of(watchman.histories().get(running.key, []))
