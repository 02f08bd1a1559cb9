"""Every path and method, requested without authentication and by the owner."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from stoker.api.access import OwnerAccess
from stoker.api.app import Api
from stoker.api.endpoint import Endpoint
from stoker.api.endpoints import ENDPOINTS
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
def test_a_request_without_authentication_is_refused(method: str, path: str) -> None:
    status, headers, body = ask(Api(None), method, path)  # type: ignore[arg-type]
    declared = {each.method for each in ENDPOINTS if each.path == path}
    assert status == (403 if method in declared else 405)
    assert headers["content-type"] == "application/problem+json"
    assert msgspec.json.decode(body, type=Problem).status == status
    if status == 405:
        assert set(headers["allow"].split(", ")) == declared


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/add/", "/v2/add", "/v1/../v1/add"])
def test_unknown_paths_are_not_found(path: str) -> None:
    status, headers, _body = ask(OwnerAccess(Api(None)), "GET", path)  # type: ignore[arg-type]
    assert status == 404
    assert headers["content-type"] == "application/problem+json"


def test_an_unexpected_error_is_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def call(_context: object) -> str:
        raise RuntimeError("token=secret")

    broken = Endpoint("GET", "/v1/broken", call, str)
    app = OwnerAccess(Api(None, (broken,)))  # type: ignore[arg-type]
    status, _headers, body = ask(app, "GET", "/v1/broken")
    assert status == 500
    assert b"secret" not in body
    assert "a request failed" in caplog.text
