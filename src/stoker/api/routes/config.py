"""GET and PATCH /v1/config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.engine.service import config as service

if TYPE_CHECKING:
    from stoker.engine.hub import Hub


async def read(hub: Hub, _query: NoQuery, _body: None) -> list[wire.Setting]:
    """Tell every entry of the configuration, with its default and its meaning."""
    return service.read(hub)


async def change(hub: Hub, _query: NoQuery, body: wire.NewSetting) -> wire.Setting:
    """Change one entry of the configuration; most count at once, others after a restart."""
    return service.change(hub, body)


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
