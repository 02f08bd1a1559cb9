"""GET /v1/sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.service import sweeps as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


class SweepsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of them."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


async def sweeps(context: QueueContext, query: SweepsQuery, _body: None) -> list[wire.SweepInfo]:
    """List sweeps, the newest first, with the states of their runs."""
    return await service.sweeps(context, query.limit)


SWEEPS = Endpoint(
    method="GET",
    path="/v1/sweeps",
    call=sweeps,
    query=SweepsQuery,
    body=type(None),
    answer=list[wire.SweepInfo],
    lets_in=OWNER,
)
