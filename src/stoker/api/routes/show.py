"""GET /v1/show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.service import show as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


class ShowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one job that is meant, as typed: an id, `@`, a name, `project/name`."""

    job: str


async def show(context: QueueContext, query: ShowQuery, _body: None) -> wire.JobDetail:
    """Tell everything about one job."""
    return service.show(context, query.job)


SHOW = Endpoint(
    method="GET",
    path="/v1/show",
    call=show,
    query=ShowQuery,
    body=type(None),
    answer=wire.JobDetail,
    refusals=(404, 409),
    lets_in=OWNER,
)
