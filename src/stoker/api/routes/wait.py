"""GET /v1/wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, Media
from stoker.api.stream import Chunks, Stream
from stoker.service import wait as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

# Thousands of changes a second make ten lines a second, and the last one comes soon nevertheless.
_LONGEST_PAUSE_S = 0.1
_SHORTEST_PAUSE_S = 0.005
_PAUSE_PER_JOB_S = 0.0005
# To look through thousands of jobs takes milliseconds, which others must not wait for too often.
_PAUSE_PER_LOOK = 20


async def wait(context: QueueContext, query: wire.WaitFor, _body: None) -> Stream:
    """Tell how far these jobs are: at once, after every change, and for the last time when none is left."""
    wanted = service.begin(context, query, time.time())
    return Stream(_lines(context, wanted, service.progress(context, wanted)), Media.LINES.value)


async def _lines(context: QueueContext, selection: wire.WaitFor, progress: wire.Progress) -> Chunks:
    told: wire.Progress | None = None
    while True:
        if progress != told:
            yield msgspec.json.encode(progress) + b"\n"
            told = progress
        if not progress.left:
            return
        version = context.events.version
        began = time.monotonic()
        progress = service.progress(context, selection)
        look_s = time.monotonic() - began
        if progress == told:
            await context.events.changed_since(version)
            await asyncio.sleep(pause_s(progress.left, look_s))
            progress = service.progress(context, selection)


def pause_s(left: int, look_s: float) -> float:
    """How long to gather changes: at most about as long as it takes to run what is left."""
    wanted_s = max(_SHORTEST_PAUSE_S, _PAUSE_PER_JOB_S * left, _PAUSE_PER_LOOK * look_s)
    return min(_LONGEST_PAUSE_S, wanted_s)


WAIT = Endpoint(
    method="GET",
    path="/v1/wait",
    call=wait,
    query=wire.WaitFor,
    body=type(None),
    answer=wire.Progress,
    media=Media.LINES,
    refusals=(404, 409),
    lets_in=OWNER,
)
