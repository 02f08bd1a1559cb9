"""GET /v1/openapi.json."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stoker.api.endpoint import OWNER, Endpoint, NoQuery
from stoker.api.openapi import make_document

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext


async def openapi(_context: QueueContext, _query: NoQuery, _body: None) -> dict[str, Any]:
    """Tell what this interface takes and gives, as an OpenAPI document."""
    return _document()


@functools.cache
def _document() -> dict[str, Any]:
    from stoker.api.routes import ENDPOINTS

    return make_document(ENDPOINTS)


OPENAPI = Endpoint(
    method="GET",
    path="/v1/openapi.json",
    call=openapi,
    query=NoQuery,
    body=type(None),
    answer=dict[str, Any],
    lets_in=OWNER,
)
