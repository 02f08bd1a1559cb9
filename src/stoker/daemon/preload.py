"""Imports modules that the daemon needs only later.

A daemon thus keeps running the code it was started with while Stoker is upgraded or removed.
"""

from __future__ import annotations

import asyncio
import importlib

from stoker.engine.event_publisher import log

# The client that started the daemon sends a request at once: answer that first.
_DELAY_S = 0.5
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
    """Import all modules in a thread, so that the daemon answers requests meanwhile."""
    await asyncio.sleep(_DELAY_S)
    await asyncio.to_thread(_import_all)


def _import_all() -> None:
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            log(f"cannot import {name} ahead of its use: {error}")
