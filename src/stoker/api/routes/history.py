"""GET /v1/history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.api.routes.show import ShowQuery
from stoker.service import history as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

_PERIOD_S = 2.0


async def history(context: QueueContext, query: ShowQuery, _body: None) -> wire.History:
    """Tell what a job has used of its GPUs in its last minutes; of those that are over, the latest."""
    return service.history(context, query.job)


HISTORY = Endpoint(
    method="GET",
    path="/v1/history",
    call=history,
    query=ShowQuery,
    body=type(None),
    answer=wire.History,
    refusals=(404, 409),
    lets_in=OWNER,
    period_s=_PERIOD_S,
)
