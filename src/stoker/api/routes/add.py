"""POST /v1/add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import add as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def add(hub: Hub, _query: NoQuery, body: wire.Submission) -> wire.Added:
    """Put jobs into the queue. The answer comes when they are on disk; a repeat adds nothing."""
    return await service.add(hub, body)


ADD = Endpoint(
    method="POST",
    path="/v1/add",
    call=add,
    query=NoQuery,
    body=wire.Submission,
    answer=wire.Added,
    status=201,
    refusals=(404, 409),
    lets_in=OWNER,
)
