"""GET and PATCH /v1/config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.service import config as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def read(context: QueueContext, _query: NoQuery, _body: None) -> list[wire.Setting]:
    """Tell every entry of the configuration, with its default and its meaning."""
    return service.read(context)


async def change(context: QueueContext, _query: NoQuery, body: wire.NewSetting) -> wire.Setting:
    """Change one entry of the configuration; most count at once, others after a restart."""
    return service.change(context, body)


READ = Endpoint(
    method="GET",
    path="/v1/config",
    call=read,
    query=NoQuery,
    body=type(None),
    answer=list[wire.Setting],
    lets_in=OWNER,
)

CHANGE = Endpoint(
    method="PATCH",
    path="/v1/config",
    call=change,
    query=NoQuery,
    body=wire.NewSetting,
    answer=wire.Setting,
    refusals=(404, 409),
    lets_in=OWNER,
)
