"""`stop`: ends the daemon; what runs goes on, unless it is to be killed."""

from __future__ import annotations

from stoker.engine.hub import Hub
from stoker.failpoints import reach
from stoker.wire import Stop


def stop(hub: Hub, order: Stop) -> None:
    """Ask the daemon to go once this answer is out."""
    reach("stop-asked")
    if not hub.stopping.done():
        hub.stopping.set_result(order.kill)
