"""POST /v1/preempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import preempt as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def preempt(context: QueueContext, _query: NoQuery, body: wire.Preempt) -> wire.Changed:
    """Let running jobs make room: they are asked to stop, and wait again."""
    return await service.preempt(context, body)


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
