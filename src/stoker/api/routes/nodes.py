"""GET and POST /v1/nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import nodes as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def read(context: QueueContext, _query: NoQuery, _body: None) -> list[wire.NodeInfo]:
    """Tell of every machine of the cluster: none where there is no cluster."""
    return service.read(context)


async def nodes(
    context: QueueContext, _query: NoQuery, body: wire.NodeOrder
) -> list[wire.NodeInfo]:
    """Forget a node that is not coming back."""
    return service.nodes(context, body)


READ = Endpoint(
    method="GET",
    path="/v1/nodes",
    call=read,
    query=NoQuery,
    body=type(None),
    answer=list[wire.NodeInfo],
    lets_in=OWNER,
)

NODES = Endpoint(
    method="POST",
    path="/v1/nodes",
    call=nodes,
    query=NoQuery,
    body=wire.NodeOrder,
    answer=list[wire.NodeInfo],
    refusals=(404, 409),
    lets_in=OWNER,
)
