"""The ASGI application: every endpoint behind the checks that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoker.api.access import Receive, Scope, Send, is_from_owner
from stoker.api.body import read_json, refuse_body
from stoker.api.endpoint import Endpoint, Media
from stoker.api.endpoints import ENDPOINTS
from stoker.api.problem import RefusedError, answer_error, answer_http_exception, log_error
from stoker.api.query import read_query
from stoker.api.stream import Stream

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

_encode = msgspec.json.Encoder().encode


def make_app(context: QueueContext, endpoints: tuple[Endpoint, ...] = ENDPOINTS) -> Starlette:
    """Return an app with all verbs over one context, to be called in its event loop behind `access`."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    app = Starlette(
        routes=[_route(path, _Path(context, methods)) for path, methods in by_path.items()],
        exception_handlers={HTTPException: answer_http_exception},
    )
    app.router.redirect_slashes = False
    return app


def _route(path: str, app: _Path) -> Route:
    route = Route(path, endpoint=app, methods=list(app.methods))
    route.methods = set(app.methods)  # Starlette adds a HEAD that no endpoint declares
    return route


class _Path:
    """One path with an endpoint for each of its methods."""

    def __init__(self, context: QueueContext, methods: dict[str, Endpoint]) -> None:
        self._context = context
        self.methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.methods[scope["method"]]
        response: Response | Stream
        try:
            response = await _answer(self._context, endpoint, Request(scope, receive))
        except Exception as error:
            response = answer_error(error)
        try:
            await response(scope, receive, send)
        except Exception as error:
            log_error(error)


async def answer_get(context: QueueContext, endpoint: Endpoint, query: bytes) -> bytes:
    """Return what a GET would answer, as JSON; raise where it would refuse."""
    return _encode(await endpoint.handle(context, read_query(query, endpoint.query), None))


async def _answer(context: QueueContext, endpoint: Endpoint, request: Request) -> Response | Stream:
    if not is_from_owner(request.scope):
        raise RefusedError(403, "access denied", hang_up=True)
    query = read_query(request.scope["query_string"], endpoint.query, request.path_params)
    body = None
    if endpoint.body is None:
        refuse_body(request)
    else:
        body = await read_json(request, endpoint.decoder)
    found = await endpoint.handle(context, query, body)
    if isinstance(found, Stream):
        return found
    if endpoint.status == 204:
        return Response(status_code=204)
    content = _encode(found) if endpoint.media is Media.JSON else found
    return Response(content, endpoint.status, media_type=endpoint.media.value)
