"""POST /v1/stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import stop as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def stop(context: QueueContext, _query: NoQuery, body: wire.Stop) -> None:
    """End the daemon. Jobs that run go on, unless `kill` is asked for."""
    service.stop(context, body)


STOP = Endpoint(
    method="POST",
    path="/v1/stop",
    call=stop,
    query=NoQuery,
    body=wire.Stop,
    answer=None,
    status=204,
    lets_in=OWNER,
)
