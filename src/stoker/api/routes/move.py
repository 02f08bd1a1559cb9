"""POST /v1/move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import move as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def move(hub: Hub, _query: NoQuery, body: wire.Move) -> wire.Moved:
    """Put a waiting job at a position of the queue."""
    return service.move(hub, body)


MOVE = Endpoint(
    method="POST",
    path="/v1/move",
    call=move,
    query=NoQuery,
    body=wire.Move,
    answer=wire.Moved,
    refusals=(404, 409),
    lets_in=OWNER,
)
