"""POST /v1/retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import retry as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def retry(context: QueueContext, _query: NoQuery, body: wire.Retry) -> wire.Changed:
    """Let jobs that are over run once more."""
    return await service.retry(context, body)


RETRY = Endpoint(
    method="POST",
    path="/v1/retry",
    call=retry,
    query=NoQuery,
    body=wire.Retry,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
