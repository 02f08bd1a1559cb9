"""POST /v1/release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import release as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def release(context: QueueContext, _query: NoQuery, body: wire.Release) -> wire.Changed:
    """Let held jobs go on."""
    return await service.release(context, body)


RELEASE = Endpoint(
    method="POST",
    path="/v1/release",
    call=release,
    query=NoQuery,
    body=wire.Release,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
