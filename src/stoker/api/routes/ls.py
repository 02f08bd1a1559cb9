"""GET /v1/ls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.service import ls as service
from stoker.service.job_selection import check_project

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

MAX_PAGE = 1000


class LsQuery(wire.Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, and which page of them: `after` is the `next` of the page before.

    Without `sort` they come as they run, wait and have ended; by `name`, those without one come last.
    `gpu` is one that they run or ran on. With `strict` a project that nobody has used is refused.
    """

    text: str | None = None
    gpu: str | None = None
    strict: bool = False
    sort: Literal["oldest", "newest", "name"] | None = None
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 100


async def ls(context: QueueContext, query: LsQuery, _body: None) -> wire.Page:
    """List jobs, a page at a time."""
    if query.strict and query.project is not None:
        check_project(context, query.project)
    return service.ls(
        context,
        query,
        text=query.text,
        gpu=query.gpu,
        sort=query.sort,
        after=query.after,
        limit=query.limit,
    )


LS = Endpoint(
    method="GET",
    path="/v1/ls",
    call=ls,
    query=LsQuery,
    body=type(None),
    answer=wire.Page,
    refusals=(404, 409),
    lets_in=OWNER,
)
