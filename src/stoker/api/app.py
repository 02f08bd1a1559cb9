"""The ASGI application: finds the endpoint of a request, behind the checks that all of them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from stoker.api.access import is_from_owner
from stoker.api.asgi import Receive, Scope, Send
from stoker.api.body import read_json, refuse_body
from stoker.api.endpoint import Endpoint, Media
from stoker.api.endpoints import ENDPOINTS
from stoker.api.problem import RefusedError, answer_error, log_error
from stoker.api.query import read_query
from stoker.api.response import Response
from stoker.api.stream import Stream

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext

Methods = dict[str, Endpoint]

_encode = msgspec.json.Encoder().encode


class Api:
    """All verbs over one context, to be called in its event loop behind `access`.

    The last part of a path can be a parameter, as in `/gpupeasy/jobinfo/{jobID}`.
    """

    def __init__(self, context: QueueContext, endpoints: tuple[Endpoint, ...] = ENDPOINTS) -> None:
        self._context = context
        self._by_path: dict[str, Methods] = {}
        self._by_folder: dict[str, tuple[str, Methods]] = {}
        for endpoint in endpoints:
            folder, _, name = endpoint.path.rpartition("/")
            if name.startswith("{"):
                _name, methods = self._by_folder.setdefault(folder, (name.strip("{}"), {}))
            else:
                methods = self._by_path.setdefault(endpoint.path, {})
            methods[endpoint.method] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response: Response | Stream
        try:
            endpoint, parameters = self._find(scope["path"], scope["method"])
            response = await _answer(self._context, endpoint, parameters, scope, receive)
        except Exception as error:
            response = answer_error(error)
        try:
            await response(scope, receive, send)
        except Exception as error:
            log_error(error)

    def _find(self, path: str, method: str) -> tuple[Endpoint, Mapping[str, str]]:
        parameters: dict[str, str] = {}
        methods = self._by_path.get(path)
        if methods is None:
            folder, _, value = path.rpartition("/")
            name, methods = self._by_folder.get(folder, ("", {}))
            parameters = {name: value}
            if not (methods and value):
                raise RefusedError(404, "Not Found")
        endpoint = methods.get(method)
        if endpoint is None:
            raise RefusedError(405, "Method Not Allowed", headers={"allow": ", ".join(methods)})
        return endpoint, parameters


async def answer_get(context: QueueContext, endpoint: Endpoint, query: bytes) -> bytes:
    """Return what a GET would answer, as JSON; raise where it would refuse."""
    return _encode(await endpoint.handle(context, read_query(query, endpoint.query), None))


async def _answer(
    context: QueueContext,
    endpoint: Endpoint,
    parameters: Mapping[str, str],
    scope: Scope,
    receive: Receive,
) -> Response | Stream:
    if not is_from_owner(scope):
        raise RefusedError(403, "access denied", hang_up=True)
    query = read_query(scope["query_string"], endpoint.query, parameters)
    body = None
    if endpoint.body is None:
        refuse_body(scope)
    else:
        body = await read_json(scope, receive, endpoint.decoder)
    found = await endpoint.handle(context, query, body)
    if isinstance(found, Stream):
        return found
    if endpoint.status == 204:
        return Response(status=204)
    content = _encode(found) if endpoint.media is Media.JSON else found
    return Response(content, endpoint.status, media=endpoint.media.value)
