"""POST /v1/preempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import preempt as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def preempt(hub: Hub, _query: NoQuery, body: wire.Preempt) -> wire.Changed:
    """Let running jobs make room: they are asked to stop, and wait again."""
    return await service.preempt(hub, body)


PREEMPT = Endpoint(
    method="POST",
    path="/v1/preempt",
    call=preempt,
    query=NoQuery,
    body=wire.Preempt,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
