"""`stop`: ends the daemon; what runs goes on, unless it is to be killed."""

from __future__ import annotations

from stoker.engine.context import QueueContext
from stoker.failpoints import reach
from stoker.wire import Stop


def stop(context: QueueContext, order: Stop) -> None:
    """Ask the daemon to go once this answer is out."""
    reach("stop-asked")
    if not context.stopping.done():
        context.stopping.set_result(order.kill)
