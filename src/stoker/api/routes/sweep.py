"""GET and POST /v1/sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import sweep as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

MAX_PAGE = 10_000


class SweepQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sweep, by its name and the folder it was submitted from, and which page of its runs."""

    name: wire.Name
    cwd: str
    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 1000
    params: bool = False


async def sweep(context: QueueContext, query: SweepQuery, _body: None) -> wire.SweepPage:
    """List the runs of a sweep, a page at a time."""
    return service.sweep(
        context, query.name, query.cwd, after=query.after, limit=query.limit, params=query.params
    )


async def queue(context: QueueContext, _query: NoQuery, body: wire.SweepOrder) -> msgspec.Raw:
    """Queue the runs of a sweep that have not succeeded, or those that `rerun` names."""
    return msgspec.Raw(await context.worker_tasks.send("queue", body))


SWEEP = Endpoint(
    method="GET",
    path="/v1/sweep",
    call=sweep,
    query=SweepQuery,
    body=type(None),
    answer=wire.SweepPage,
    lets_in=OWNER,
)

QUEUE = Endpoint(
    method="POST",
    path="/v1/sweep",
    call=queue,
    query=NoQuery,
    body=wire.SweepOrder,
    answer=wire.SweepAdded,
    status=201,
    refusals=(404, 409),
    lets_in=OWNER,
)
