"""POST /v1/release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import release as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def release(hub: Hub, _query: NoQuery, body: wire.Release) -> wire.Changed:
    """Let held jobs go on."""
    return await service.release(hub, body)


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
