"""`search`: steers a sweep while it runs. A controller, a process of its own, does the work."""

from __future__ import annotations

from stoker.core.selector import check_name
from stoker.engine.context import QueueContext
from stoker.errors import UsageError
from stoker.wire import SearchBegun, SearchOrder


async def search(context: QueueContext, order: SearchOrder) -> SearchBegun:
    """Choose the next runs of a sweep by the results so far, and stop runs early, until the sweep is over."""
    check_name("the sweep", order.name)
    submission = order.submission
    if submission.sweep != order.name or submission.cwd != order.cwd:
        raise UsageError("the submission is of another sweep: give both the same name and folder")
    return await context.searches.begin(order)
