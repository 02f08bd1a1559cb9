"""GET /v1/counts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from stoker.api.blocking_calls import call_in_thread
from stoker.api.endpoint import OWNER, Endpoint
from stoker.core.lifecycle import State
from stoker.service import counts as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


class CountsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are counted: as in GET /v1/ls; of all, if nothing is said."""

    project: str | None = None
    text: str | None = None
    gpu: str | None = None


async def counts(context: QueueContext, query: CountsQuery, _body: None) -> dict[State, int]:
    """Count jobs by their states; to count a part of a million takes a while, and holds up nobody."""
    if query == CountsQuery():
        return context.jobs.tally()
    wanted = msgspec.structs.asdict(query)
    return await call_in_thread(partial(service.count, context.database.path, **wanted))


COUNTS = Endpoint(
    method="GET",
    path="/v1/counts",
    call=counts,
    query=CountsQuery,
    body=type(None),
    answer=dict[State, int],
    lets_in=OWNER,
)
