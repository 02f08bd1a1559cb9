"""POST /v1/pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import pause as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def pause(hub: Hub, _query: NoQuery, body: wire.Pause) -> wire.Changed:
    """Stop running jobs where they are; or let the queue, or a project, start nothing more."""
    return await service.pause(hub, body)


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
