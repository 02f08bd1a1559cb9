"""POST /v1/kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import kill as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def kill(context: QueueContext, _query: NoQuery, body: wire.Kill) -> wire.Changed:
    """End jobs: the whole tree of each, by TERM, and by KILL when the grace time is over."""
    return await service.kill(context, body)


KILL = Endpoint(
    method="POST",
    path="/v1/kill",
    call=kill,
    query=NoQuery,
    body=wire.Kill,
    answer=wire.Changed,
    refusals=(404, 409),
    lets_in=OWNER,
)
