"""POST /v1/batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.blocking_calls import call_in_thread
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.errors import UsageError
from stoker.service.batch import read_batch

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def batch(_context: QueueContext, _query: NoQuery, body: wire.BatchText) -> wire.BatchJobs:
    """Tell which jobs a text means, and what is wrong with it. Nothing is added."""
    if not body.cwd.startswith("/") or "\0" in body.cwd:
        raise UsageError("cwd is not an absolute path", field="cwd")
    return await call_in_thread(read_batch, body)


BATCH = Endpoint(
    method="POST",
    path="/v1/batch",
    call=batch,
    query=NoQuery,
    body=wire.BatchText,
    answer=wire.BatchJobs,
    lets_in=OWNER,
)
