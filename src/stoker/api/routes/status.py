"""GET /v1/status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import status as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def status(context: QueueContext, _query: NoQuery, _body: None) -> wire.Status:
    """Tell how the daemon is: its slots, how many jobs stand where, what a person should know."""
    return service.status(context)


STATUS = Endpoint(
    method="GET",
    path="/v1/status",
    call=status,
    query=NoQuery,
    body=type(None),
    answer=wire.Status,
    lets_in=OWNER,
)
