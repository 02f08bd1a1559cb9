"""POST /v1/pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import pause as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def pause(context: QueueContext, _query: NoQuery, body: wire.Pause) -> wire.Changed:
    """Stop running jobs where they are; or let the queue, or a project, start nothing more."""
    return await service.pause(context, body)


PAUSE = Endpoint(
    method="POST",
    path="/v1/pause",
    call=pause,
    query=NoQuery,
    body=wire.Pause,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
