"""`web`: opens and closes the web page, also for the next start of the daemon."""

from __future__ import annotations

from stoker.engine.context import QueueContext
from stoker.errors import ConflictError
from stoker.wire import WebOrder, WebPlace


async def web(context: QueueContext, order: WebOrder) -> WebPlace | None:
    """Open, move or close the web page; returns its address and the file with its token.

    Without a host, only this machine can reach it.
    """
    if context.page is None:
        raise ConflictError("this process has no web page: the daemon has")
    if order.action == "close":
        await context.page.close()
        _remember(context, None)
        return None
    place = await context.page.open(order.host, order.port, new_token=order.new_token)
    _remember(context, f"{place.host}:{place.port}")
    return place


def _remember(context: QueueContext, place: str | None) -> None:
    if context.config.text("web") == (place or "none"):
        return
    with context.database.transaction(durable=True):
        context.config.write("web", place)
    context.config.load()
