"""POST /v1/move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import move as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def move(context: QueueContext, _query: NoQuery, body: wire.Move) -> wire.Moved:
    """Put a waiting job at a position of the queue."""
    return service.move(context, body)


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
