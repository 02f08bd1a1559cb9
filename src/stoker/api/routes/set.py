"""POST /v1/set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import set as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def set_(context: QueueContext, _query: NoQuery, body: wire.Set) -> wire.Changed:
    """Change what jobs ask for."""
    return await service.set_(context, body)


SET = Endpoint(
    method="POST",
    path="/v1/set",
    call=set_,
    query=NoQuery,
    body=wire.Set,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
