"""`web`: opens and closes the page; whether it is open is remembered."""

from __future__ import annotations

from stoker.engine.hub import Hub
from stoker.errors import ConflictError
from stoker.wire import WebOrder, WebPlace


async def web(hub: Hub, order: WebOrder) -> WebPlace | None:
    """Open the page, on this machine alone unless a host is named, move it, or close it."""
    if hub.page is None:
        raise ConflictError("this process has no web page: the daemon has")
    if order.action == "close":
        await hub.page.close()
        _remember(hub, None)
        return None
    place = await hub.page.open(order.host, order.port, new_token=order.new_token)
    _remember(hub, f"{place.host}:{place.port}")
    return place


def _remember(hub: Hub, place: str | None) -> None:
    if hub.config.text("web") == (place or "none"):
        return
    with hub.database.transaction(durable=True):
        hub.config.write("web", place)
    hub.config.load()
