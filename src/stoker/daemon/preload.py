"""Imports ahead of its use what the daemon may need later.

So a daemon goes on, with the code that it was started with, while Stoker is upgraded or removed under it.
"""

from __future__ import annotations

import asyncio
import importlib

from stoker.engine.event_publisher import log

# A daemon that was just started is about to be asked for something: that comes first.
_PAUSE_S = 0.5
MODULES = (
    "stoker.core.diagnosis",
    "stoker.core.log_symptoms",
    "stoker.engine.shared_slots",
    "stoker.warm.command",
    "concurrent.futures.thread",
    "importlib.metadata",
    "traceback",
    "urllib.parse",
    "stoker.web.listener",
    "stoker.web.port",
)


async def preload() -> None:
    """Import everything, in a thread: requests are answered meanwhile."""
    await asyncio.sleep(_PAUSE_S)
    await asyncio.to_thread(_import_all)


def _import_all() -> None:
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            log(f"cannot import {name} ahead of its use: {error}")
