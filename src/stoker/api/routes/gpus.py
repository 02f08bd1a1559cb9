"""POST /v1/gpus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import gpus as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def gpus(hub: Hub, _query: NoQuery, body: wire.GpuOrder) -> wire.GpuChange:
    """Add a slot, drain it or remove it; what runs there is never touched."""
    return service.gpus(hub, body)


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
