"""GET /v1/events: streams events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import Endpoint, Media
from stoker.api.stream import Chunks, Stream

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


def events(context: QueueContext) -> Stream:
    """Stream everything that happens to jobs and slots from now on, one line of JSON per event."""
    return Stream(_lines(context), Media.LINES.value)


async def _lines(context: QueueContext) -> Chunks:
    encode = msgspec.json.Encoder().encode_lines
    listener = context.events.listen()
    try:
        async for batch in listener:
            yield encode(batch)
    finally:
        listener.close()


ENDPOINT = Endpoint("GET", "/v1/events", events, wire.StreamEvent, media=Media.LINES)
