"""Every route and method, asked over TCP without the token, and with wrong names."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from stoker.api.access import asker_of
from stoker.api.routes import ENDPOINTS
from stoker.web.assets import load_assets
from stoker.web.door import LIVE_PATH, LOOPBACK, TokensDoor
from stoker.wire import Problem

TOKEN = "t" * 43
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
PATHS = sorted({endpoint.path for endpoint in ENDPOINTS})
ASSETS = load_assets()
HOST = {"host": "127.0.0.1:7865"}
IN = {**HOST, "authorization": f"Bearer {TOKEN}"}


class Inside:
    """What stands behind the door, and remembers who came."""

    def __init__(self) -> None:
        self.came: list[str] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.came.append(scope["path"])
        if scope["type"] == "http":
            assert asker_of(scope) is not None
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"in"})


def ask(
    method: str, path: str, headers: dict[str, str], query: bytes = b"", kind: str = "http"
) -> tuple[int, dict[str, str], bytes, Inside]:
    inside, sent = Inside(), []
    door = TokensDoor(inside, inside, ASSETS, lambda: TOKEN, LOOPBACK)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(door(scope, receive, send))
    if kind == "websocket":
        return 0 if inside.came else 403, {}, b"", inside
    answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answer, b"".join(each.get("body", b"") for each in sent[1:]), inside


@pytest.mark.parametrize("path", [*PATHS, "/v1", "/v2/ls", "/token", "/../token", LIVE_PATH])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_answers_without_the_token(method: str, path: str) -> None:
    wrong: list[tuple[dict[str, str], bytes]] = [
        ({}, b""),
        ({"authorization": "Bearer "}, b""),
        ({"authorization": f"Bearer {TOKEN}x"}, b""),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, b""),
        ({"authorization": f"Basic {TOKEN}"}, b""),
        ({"authorization": TOKEN}, b""),
        ({"cookie": f"token={TOKEN}"}, b""),
        ({}, f"token={TOKEN}".encode()),
    ]
    for headers, query in wrong:
        status, answer, body, inside = ask(method, path, {**HOST, **headers}, query)
        assert status == 401
        assert inside.came == []
        assert msgspec.json.decode(body, type=Problem).status == 401
        assert TOKEN not in str(answer)


@pytest.mark.parametrize("path", PATHS)
def test_the_token_lets_in_as_the_owner(path: str) -> None:
    status, _answer, _body, inside = ask("GET", path, IN)
    assert (status, inside.came) == (200, [path])


@pytest.mark.parametrize("path", sorted(ASSETS))
@pytest.mark.parametrize("method", METHODS)
def test_the_pages_own_files_are_read_only_and_need_no_token(method: str, path: str) -> None:
    status, answer, _body, inside = ask(method, path, HOST)
    assert inside.came == []
    assert status == (200 if method in ("GET", "HEAD") else 401)
    assert answer["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7865", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]"],
)
@pytest.mark.parametrize("path", ["/", "/v1/status"])
def test_another_name_for_this_machine_is_refused_even_with_the_token(host: str, path: str) -> None:
    status, _answer, _body, inside = ask("GET", path, {**IN, "host": host})
    assert (status, inside.came) == (403, [])


@pytest.mark.parametrize("host", ["127.0.0.1:7865", "localhost:9000", "LOCALHOST", "[::1]:80"])
def test_the_names_of_this_machine_lead_here_by_any_port(host: str) -> None:
    assert ask("GET", "/v1/status", {**IN, "host": host})[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:7866", "https://127.0.0.1:7865", "null"]
)
def test_pages_from_elsewhere_are_refused(origin: str) -> None:
    for kind, path in (("http", "/v1/status"), ("websocket", LIVE_PATH)):
        status, _answer, _body, inside = ask("GET", path, {**IN, "origin": origin}, kind=kind)
        assert (status, inside.came) == (403, [])


def test_a_websocket_comes_from_our_page_and_to_its_one_path() -> None:
    ours = {**HOST, "origin": "http://127.0.0.1:7865"}
    assert ask("GET", LIVE_PATH, ours, kind="websocket")[0] == 0
    assert ask("GET", LIVE_PATH, HOST, kind="websocket")[0] == 403
    assert ask("GET", "/v1/status", ours, kind="websocket")[0] == 403


def test_two_hosts_in_one_request_are_none() -> None:
    door = TokensDoor(Inside(), Inside(), ASSETS, lambda: TOKEN, LOOPBACK)
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/status",
        "headers": [(b"host", b"127.0.0.1"), (b"host", b"evil"), (b"authorization", b"")],
    }
    assert door._stranger(scope) is not None


def test_every_answer_forbids_what_the_page_does_not_need() -> None:
    for path, headers in (("/", HOST), ("/v1/status", IN), ("/v1/status", HOST)):
        _status, answer, _body, _inside = ask("GET", path, headers)
        policy = answer["content-security-policy"]
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer
    assert ask("GET", "/v1/status", IN)[1]["cache-control"] == "no-store"


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    etag = ask("GET", "/app.css", HOST)[1]["etag"]
    status, _answer, body, _inside = ask("GET", "/app.css", {**HOST, "if-none-match": etag})
    assert (status, body) == (304, b"")
