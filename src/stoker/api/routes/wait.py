"""GET /v1/wait: streams the progress of jobs until they have ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import Endpoint, Media
from stoker.api.stream import Chunks, Stream
from stoker.service import wait as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

# Pauses between two lines: thousands of changes per second become ten lines per second, and the last line
# still comes soon.
_LONGEST_PAUSE_S = 0.1
_SHORTEST_PAUSE_S = 0.005
_PAUSE_PER_JOB_S = 0.0005
# Counting thousands of jobs takes milliseconds, in which the daemon does nothing else.
_PAUSE_PER_LOOK = 20


def wait(context: QueueContext, query: wire.WaitFor) -> Stream:
    """Stream the progress of jobs: at once, after every change, and when none is left."""
    wanted = service.begin(context, query, time.time())
    return Stream(_lines(context, wanted, service.progress(context, wanted)), Media.LINES.value)


async def _lines(context: QueueContext, selection: wire.WaitFor, progress: wire.Progress) -> Chunks:
    sent: wire.Progress | None = None
    while True:
        if progress != sent:
            yield msgspec.json.encode(progress) + b"\n"
            sent = progress
        if not progress.left:
            return
        version = context.events.version
        began = time.monotonic()
        progress = service.progress(context, selection)
        look_s = time.monotonic() - began
        if progress == sent:
            await context.events.changed_since(version)
            await asyncio.sleep(pause_s(progress.left, look_s))
            progress = service.progress(context, selection)


def pause_s(left: int, look_s: float) -> float:
    """Return how long to gather changes: at most about the time that the remaining jobs take."""
    wanted_s = max(_SHORTEST_PAUSE_S, _PAUSE_PER_JOB_S * left, _PAUSE_PER_LOOK * look_s)
    return min(_LONGEST_PAUSE_S, wanted_s)


ENDPOINT = Endpoint(
    "GET",
    "/v1/wait",
    wait,
    wire.Progress,
    wire.WaitFor,
    media=Media.LINES,
    refusals=(404, 409),
)
