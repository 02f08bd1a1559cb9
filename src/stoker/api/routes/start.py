"""POST /v1/start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import start as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def start(context: QueueContext, _query: NoQuery, body: wire.Start) -> wire.Changed:
    """Let jobs start as the very next, past everything but GPUs that are taken."""
    return await service.start(context, body)


START = Endpoint(
    method="POST",
    path="/v1/start",
    call=start,
    query=NoQuery,
    body=wire.Start,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
