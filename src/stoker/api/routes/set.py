"""POST /v1/set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import set as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def set_(hub: Hub, _query: NoQuery, body: wire.Set) -> wire.Changed:
    """Change what jobs ask for."""
    return await service.set_(hub, body)


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
