"""POST /v1/resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import resume as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def resume(context: QueueContext, _query: NoQuery, body: wire.Resume) -> wire.Changed:
    """Let paused jobs, the queue, or a project's part of it go on."""
    return await service.resume(context, body)


RESUME = Endpoint(
    method="POST",
    path="/v1/resume",
    call=resume,
    query=NoQuery,
    body=wire.Resume,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
