"""GET /v1/wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, Media
from stoker.api.stream import Chunks, Stream
from stoker.engine.service import wait as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub

_PAUSE_S = 0.1


async def wait(hub: Hub, query: wire.Selection, _body: None) -> Stream:
    """Tell how far these jobs are: at once, after every change, and for the last time when none is left."""
    return Stream(_lines(hub, query, service.progress(hub, query)), Media.LINES.value)


async def _lines(hub: Hub, selection: wire.Selection, progress: wire.Progress) -> Chunks:
    told: wire.Progress | None = None
    while True:
        if progress != told:
            yield msgspec.json.encode(progress) + b"\n"
            told = progress
        if not progress.left:
            return
        version = hub.events.version
        progress = service.progress(hub, selection)
        if progress == told:
            await hub.events.changed_since(version)
            # Thousands of changes a second make ten lines a second.
            await asyncio.sleep(_PAUSE_S)
            progress = service.progress(hub, selection)


WAIT = Endpoint(
    method="GET",
    path="/v1/wait",
    call=wait,
    query=wire.Selection,
    body=type(None),
    answer=wire.Progress,
    media=Media.LINES,
    refusals=(404, 409),
    lets_in=OWNER,
)
