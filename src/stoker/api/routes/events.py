"""GET /v1/events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, Media, NoQuery
from stoker.api.stream import Chunks, Stream

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def events(context: QueueContext, _query: NoQuery, _body: None) -> Stream:
    """Tell of everything that happens to jobs and slots from now on, a line of JSON for each."""
    return Stream(_lines(context), Media.LINES.value)


async def _lines(context: QueueContext) -> Chunks:
    encode = msgspec.json.Encoder().encode_lines
    listener = context.events.listen()
    try:
        async for batch in listener:
            yield encode(batch)
    finally:
        listener.close()


EVENTS = Endpoint(
    method="GET",
    path="/v1/events",
    call=events,
    query=NoQuery,
    body=type(None),
    answer=wire.StreamEvent,
    media=Media.LINES,
    lets_in=OWNER,
)
