"""Every route and method, asked by somebody whom no door has let in, and by the owner."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from stoker.api.access import OwnerAccess
from stoker.api.app import make_app
from stoker.api.endpoint import Endpoint, NoQuery
from stoker.api.routes import ENDPOINTS
from stoker.wire import Problem

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
PATHS = sorted({endpoint.path for endpoint in ENDPOINTS})


def ask(app: Any, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """Ask an app directly."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(app(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", METHODS)
def test_nobody_gets_in_without_a_door(method: str, path: str) -> None:
    status, headers, body = ask(make_app(None), method, path)  # type: ignore[arg-type]
    declared = {each.method for each in ENDPOINTS if each.path == path}
    assert status == (403 if method in declared else 405)
    assert headers["content-type"] == "application/problem+json"
    assert msgspec.json.decode(body, type=Problem).status == status
    if status == 405:
        assert set(headers["allow"].split(", ")) == declared


def test_a_route_that_says_nothing_lets_nobody_in_not_even_the_owner() -> None:
    async def call(_context: object, _query: NoQuery, _body: None) -> str:
        raise AssertionError("it was called")

    silent = Endpoint(
        method="GET", path="/v1/silent", call=call, query=NoQuery, body=type(None), answer=str
    )
    app = OwnerAccess(make_app(None, (silent,)))  # type: ignore[arg-type]
    assert ask(app, "GET", "/v1/silent")[0] == 403


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/add/", "/v2/add", "/v1/../v1/add"])
def test_other_paths_are_not_there(path: str) -> None:
    status, headers, _body = ask(OwnerAccess(make_app(None)), "GET", path)  # type: ignore[arg-type]
    assert status == 404
    assert headers["content-type"] == "application/problem+json"


def test_an_error_nobody_foresaw_is_a_problem_and_tells_no_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def call(_context: object, _query: NoQuery, _body: None) -> str:
        raise RuntimeError("token=secret")

    broken = Endpoint(
        method="GET",
        path="/v1/broken",
        call=call,
        query=NoQuery,
        body=type(None),
        answer=str,
        lets_in=ENDPOINTS[0].lets_in,
    )
    app = OwnerAccess(make_app(None, (broken,)))  # type: ignore[arg-type]
    status, _headers, body = ask(app, "GET", "/v1/broken")
    assert status == 500
    assert b"secret" not in body
    assert "a request failed" in caplog.text
