"""POST /v1/hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import hold as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def hold(context: QueueContext, _query: NoQuery, body: wire.Hold) -> wire.Changed:
    """Let jobs that have not begun wait until they are released."""
    return await service.hold(context, body)


HOLD = Endpoint(
    method="POST",
    path="/v1/hold",
    call=hold,
    query=NoQuery,
    body=wire.Hold,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
