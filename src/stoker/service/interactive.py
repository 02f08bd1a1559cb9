"""Watches interactive jobs: warns their users, and ends the jobs that are idle."""

from __future__ import annotations

import asyncio
import os

from stoker.engine.context import QueueContext
from stoker.engine.interactive import InteractiveLimits
from stoker.home import make_folder
from stoker.interactive.session import FOLDER, Folder
from stoker.service.kill import end_attempt

_PAUSE_S = 0.5


async def watch_for_ever(context: QueueContext) -> None:
    """Review the interactive jobs while there are any; sleep otherwise."""
    engine = context.engine
    limits = InteractiveLimits(
        engine.gpus,
        engine.clock,
        engine.termination.limit_of,
        lambda running, reason: end_attempt(context, running, reason),
    )
    folder: Folder | None = None
    while True:
        version = context.events.version
        sessions = [
            each
            for each in engine.slot_table.running.values()
            if each.entry.request.options.interactive is not None
        ]
        if sessions and folder is None:
            folder = _open_folder(context)
        pause_s = None
        if folder is not None and (sessions or limits.is_watching):
            pause_s = limits.review(sessions, folder)
        if sessions:
            await asyncio.sleep(_PAUSE_S if pause_s is None else pause_s)
        else:
            await context.events.changed_since(version)
            await asyncio.sleep(_PAUSE_S)  # a busy queue changes often


def _open_folder(context: QueueContext) -> Folder | None:
    path = os.path.join(context.home, FOLDER)
    try:
        make_folder(path)
        return Folder(path)
    except OSError as error:
        context.engine.tell_once(f"cannot watch interactive jobs: {error}")
        return None
