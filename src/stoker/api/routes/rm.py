"""POST /v1/rm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import rm as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def rm(context: QueueContext, _query: NoQuery, body: wire.Remove) -> wire.Changed:
    """Forget jobs and their logs."""
    return await service.rm(context, body)


RM = Endpoint(
    method="POST",
    path="/v1/rm",
    call=rm,
    query=NoQuery,
    body=wire.Remove,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
