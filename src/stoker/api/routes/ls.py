"""GET /v1/ls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from stoker import wire
from stoker.api.endpoint import OWNER, Endpoint
from stoker.engine.service import ls as service
from stoker.engine.service.select import check_project

if TYPE_CHECKING:
    from stoker.engine.hub import Hub

MAX_PAGE = 1000


class Query(wire.Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


async def ls(hub: Hub, query: Query, _body: None) -> wire.Page:
    """List jobs, a page at a time."""
    if query.strict and query.project is not None:
        check_project(hub, query.project)
    return service.ls(
        hub,
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
    query=Query,
    body=type(None),
    answer=wire.Page,
    refusals=(404, 409),
    lets_in=OWNER,
)
