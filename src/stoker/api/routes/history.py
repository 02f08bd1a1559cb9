"""GET /v1/history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.api.routes.show import Query
from stoker.engine.service import history as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub

_PERIOD_S = 2.0


async def history(hub: Hub, query: Query, _body: None) -> wire.History:
    """Tell what a job has used of its GPUs in its last minutes; of those that are over, the latest."""
    return service.history(hub, query.job)


HISTORY = Endpoint(
    method="GET",
    path="/v1/history",
    call=history,
    query=Query,
    body=type(None),
    answer=wire.History,
    refusals=(404, 409),
    lets_in=OWNER,
    period_s=_PERIOD_S,
)
