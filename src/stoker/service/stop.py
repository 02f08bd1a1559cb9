"""`stop`: stops the daemon."""

from __future__ import annotations

from stoker.engine.context import QueueContext
from stoker.failpoints import reach
from stoker.wire import Stop


def stop(context: QueueContext, order: Stop) -> None:
    """Stop the daemon. Running jobs go on, unless `kill` is set."""
    reach("stop-asked")
    if not context.stopping.done():
        context.stopping.set_result(order.kill)
