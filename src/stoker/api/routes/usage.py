"""GET /v1/usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import usage as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def usage(context: QueueContext, _query: NoQuery, _body: None) -> wire.Usage:
    """Tell what GPUs and jobs use, with curves of the last minutes."""
    return service.usage(context)


USAGE = Endpoint(
    method="GET",
    path="/v1/usage",
    call=usage,
    query=NoQuery,
    body=type(None),
    answer=wire.Usage,
    lets_in=OWNER,
)
