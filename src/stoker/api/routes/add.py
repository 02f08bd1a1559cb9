"""POST /v1/add."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from stoker import wire
from stoker.api.blocking_calls import call_in_thread
from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.errors import UsageError
from stoker.service import add as service

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def add(context: QueueContext, _query: NoQuery, body: wire.Submission) -> wire.Added:
    """Put jobs into the queue. The answer comes when they are on disk; a repeat adds nothing."""
    if body.by_page:
        await call_in_thread(_check_folder, body.cwd)
    return await service.add(context, body)


def _check_folder(cwd: wire.Bytes) -> None:
    """A terminal stands in its folder; what a page names may not be there."""
    try:
        folder = wire.from_wire(cwd)
    except ValueError:
        return  # the service says what is wrong with it
    if os.path.isabs(folder) and b"\0" not in folder and not os.path.isdir(folder):
        shown = folder.decode(errors="backslashreplace")
        raise UsageError(f"there is no folder {shown}: name one of this machine", field="cwd")


ADD = Endpoint(
    method="POST",
    path="/v1/add",
    call=add,
    query=NoQuery,
    body=wire.Submission,
    answer=wire.Added,
    status=201,
    refusals=(404, 409),
    lets_in=OWNER,
)
