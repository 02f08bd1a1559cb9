"""GET and POST /v1/gpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import gpus as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

_PERIOD_S = 1.0


class GpusQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the last minutes are wanted too."""

    history: bool = False


async def read(context: QueueContext, query: GpusQuery, _body: None) -> list[wire.GpuInfo]:
    """Tell how every GPU is, what the queue does there, and who else uses it."""
    await service.have_a_look(context)
    return service.read(context, history=query.history)


async def gpus(context: QueueContext, _query: NoQuery, body: wire.GpuOrder) -> wire.GpuChange:
    """Add a slot, drain it or remove it; what runs there is never touched."""
    return service.gpus(context, body)


READ = Endpoint(
    method="GET",
    path="/v1/gpus",
    call=read,
    query=GpusQuery,
    body=type(None),
    answer=list[wire.GpuInfo],
    lets_in=OWNER,
    period_s=_PERIOD_S,
)

GPUS = Endpoint(
    method="POST",
    path="/v1/gpus",
    call=gpus,
    query=NoQuery,
    body=wire.GpuOrder,
    answer=wire.GpuChange,
    refusals=(404, 409),
    lets_in=OWNER,
)
