"""POST /v1/plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint, NoQuery

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def plan(context: QueueContext, _query: NoQuery, body: wire.SweepDraft) -> msgspec.Raw:
    """Tell what a sweep comes to: how many runs, and the first of them. Nothing is added."""
    return msgspec.Raw(await context.worker_tasks.send("plan", body))


PLAN = Endpoint(
    method="POST",
    path="/v1/plan",
    call=plan,
    query=NoQuery,
    body=wire.SweepDraft,
    answer=wire.SweepPlan,
    refusals=(404, 409),
    lets_in=OWNER,
)
