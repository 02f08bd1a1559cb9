"""GET /v1/why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.api.routes.show import ShowQuery
from stoker.service import why as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def why(context: QueueContext, query: ShowQuery, _body: None) -> wire.Why:
    """Tell in one sentence why a job stands where it stands."""
    return service.why(context, query.job)


WHY = Endpoint(
    method="GET",
    path="/v1/why",
    call=why,
    query=ShowQuery,
    body=type(None),
    answer=wire.Why,
    refusals=(404, 409),
    lets_in=OWNER,
)
