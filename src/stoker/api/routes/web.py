"""POST /v1/web."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import web as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def web(context: QueueContext, _query: NoQuery, body: wire.WebOrder) -> wire.WebPlace | None:
    """Open the web page, or close it; where it is, and the file with the token that it wants."""
    return await service.web(context, body)


WEB = Endpoint(
    method="POST",
    path="/v1/web",
    call=web,
    query=NoQuery,
    body=wire.WebOrder,
    answer=wire.WebPlace | None,
    refusals=(409,),
    lets_in=OWNER,
)
