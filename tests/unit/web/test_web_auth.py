"""Every route and method, asked without a signature, and with wrong names."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from stoker.api.access import is_from_owner
from stoker.api.endpoints import ENDPOINTS
from stoker.api.headers import LOOPBACK
from stoker.api.problem import RefusedError
from stoker.web.assets import load_assets
from stoker.web.auth import LIVE_PATH, PROVE_PATH, TokenAuth
from stoker.web.handshake import Session, new_nonce, page_proof, server_proof
from stoker.web.messages import Challenge, Prove
from stoker.web.sessions import Sessions
from stoker.web.token import Secrets
from stoker.wire import Problem

TOKEN = "t" * 43
METRICS_TOKEN = "m" * 43
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
PATHS = sorted({endpoint.path for endpoint in ENDPOINTS})
ASSETS = load_assets()
HOST = {"host": "127.0.0.1:7865"}
SESSIONS = Sessions(Secrets(TOKEN, "h" * 43), None)


def open_session(sessions: Sessions = SESSIONS) -> Session:
    """A session of a page that knows the token."""
    nonces = new_nonce(), new_nonce()
    session = sessions.open(*nonces, Prove(page_proof(TOKEN, *nonces)))
    assert session is not None
    return session


def signed(
    method: str, target: str, body: bytes = b"", number: int = 1, session: Session | None = None
) -> dict[str, str]:
    """The headers of a request that a session of its own has signed."""
    session = session or open_session()
    return {**HOST, "authorization": session.sign_request(method, target, body, number)}


class Inside:
    """What stands behind the door, and remembers who came."""

    def __init__(self) -> None:
        self.came: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await receive()
        self.came.append(scope["path"])
        if scope["type"] == "http":
            assert is_from_owner(scope)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"in"})


def ask(
    method: str,
    path: str,
    headers: dict[str, str] | list[tuple[str, str]],
    query: bytes = b"",
    kind: str = "http",
    body: bytes = b"",
) -> tuple[int, dict[str, str], bytes, Inside]:
    inside, sent = Inside(), []
    door = TokenAuth(inside, inside, ASSETS, SESSIONS, METRICS_TOKEN, LOOPBACK)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    pairs = [*headers.items()] if isinstance(headers, dict) else headers
    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in pairs],
    }
    asyncio.run(door(scope, receive, send))
    if kind == "websocket":
        return 0 if inside.came else 403, {}, b"", inside
    answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answer, b"".join(each.get("body", b"") for each in sent[1:]), inside


@pytest.mark.parametrize("path", [*PATHS, "/v1", "/v2/ls", "/token", "/../token", LIVE_PATH])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_answers_without_a_signature(method: str, path: str) -> None:
    good = signed(method, path)["authorization"]
    wrong: list[tuple[dict[str, str], bytes]] = [
        ({}, b""),
        ({"authorization": f"Bearer {TOKEN}"}, b""),
        ({"authorization": f"Stoker {TOKEN}"}, b""),
        ({"authorization": f"{good}0"}, b""),
        ({"authorization": good[:-1]}, b""),
        ({"authorization": good.partition(" ")[2]}, b""),
        ({"authorization": good}, b"x=1"),
        ({"cookie": good}, b""),
        ({}, f"token={TOKEN}".encode()),
    ]
    for headers, query in wrong:
        status, answer, body, inside = ask(method, path, {**HOST, **headers}, query)
        assert status == 401
        assert inside.came == []
        assert msgspec.json.decode(body, type=Problem).status == 401
        assert TOKEN not in str(answer)


@pytest.mark.parametrize("path", PATHS)
def test_a_signed_request_is_accepted_as_the_owners(path: str) -> None:
    status, _answer, _body, inside = ask("GET", path, signed("GET", path))
    assert (status, inside.came) == (200, [path])


def test_a_signature_is_valid_once_and_during_its_session() -> None:
    session = open_session()
    headers = signed("POST", "/v1/add", b"{}", session=session)
    assert ask("POST", "/v1/add", headers, body=b"{}")[0] == 200
    assert ask("POST", "/v1/add", headers, body=b"{}")[0] == 401
    late = signed("POST", "/v1/add", b"{}", number=2, session=session)
    SESSIONS.close(session)
    assert ask("POST", "/v1/add", late, body=b"{}")[0] == 401


def test_a_body_other_than_the_signed_one_is_refused() -> None:
    with pytest.raises(RefusedError, match="not the one that was signed"):
        ask("POST", "/v1/add", signed("POST", "/v1/add", b"{}"), body=b"[]")


def test_the_daemon_proves_itself_without_sending_a_secret() -> None:
    nonce = new_nonce()
    status, _answer, body, _inside = ask("GET", PROVE_PATH, HOST, f"nonce={nonce}".encode())
    challenge = msgspec.json.decode(body, type=Challenge)
    assert status == 200
    assert challenge.proof == server_proof(TOKEN, nonce, challenge.nonce)
    assert TOKEN not in body.decode()
    assert ask("GET", PROVE_PATH, HOST, b"nonce=x")[0] == 400
    assert ask("GET", PROVE_PATH, HOST)[0] == 400


@pytest.mark.parametrize("path", sorted(ASSETS))
@pytest.mark.parametrize("method", METHODS)
def test_static_files_are_read_only_and_need_no_token(method: str, path: str) -> None:
    status, answer, _body, inside = ask(method, path, HOST)
    assert inside.came == []
    assert status == (200 if method in ("GET", "HEAD") else 401)
    assert answer["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7865", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]"],
)
@pytest.mark.parametrize("path", ["/", "/v1/status"])
def test_an_unknown_host_name_is_refused_even_with_the_token(host: str, path: str) -> None:
    headers = {**signed("GET", path), "host": host}
    status, _answer, _body, inside = ask("GET", path, headers)
    assert (status, inside.came) == (403, [])


@pytest.mark.parametrize("host", ["127.0.0.1:7865", "localhost:9000", "LOCALHOST", "[::1]:80"])
def test_the_names_of_this_machine_are_accepted_with_any_port(host: str) -> None:
    headers = {**signed("GET", "/v1/status"), "host": host}
    assert ask("GET", "/v1/status", headers)[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:7866", "https://127.0.0.1:7865", "null"]
)
def test_requests_from_other_sites_are_refused(origin: str) -> None:
    for kind, path in (("http", "/v1/status"), ("websocket", LIVE_PATH)):
        headers = {**signed("GET", path), "origin": origin}
        status, _answer, _body, inside = ask("GET", path, headers, kind=kind)
        assert (status, inside.came) == (403, [])


def test_a_websocket_is_accepted_only_from_our_page_and_at_its_path() -> None:
    ours = {**HOST, "origin": "http://127.0.0.1:7865"}
    assert ask("GET", LIVE_PATH, ours, kind="websocket")[0] == 0
    assert ask("GET", LIVE_PATH, HOST, kind="websocket")[0] == 403
    assert ask("GET", "/v1/status", ours, kind="websocket")[0] == 403


@pytest.mark.parametrize(
    ("name", "second"),
    [
        ("host", "evil.example"),
        ("host", "127.0.0.1:7865"),
        ("origin", "http://evil.example"),
        ("origin", "http://127.0.0.1:7865"),
        ("authorization", "Stoker x"),
        ("content-type", "text/plain"),
        ("content-length", "7"),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_repeated_security_header_is_refused(name: str, second: str, kind: str) -> None:
    path = "/v1/status" if kind == "http" else LIVE_PATH
    one = {
        "origin": "http://127.0.0.1:7865",
        "content-type": "application/json",
        "content-length": "0",
        **signed("GET", path),
    }
    for pairs in ([*one.items(), (name, second)], [(name, second), *one.items()]):
        status, _answer, _body, inside = ask("GET", path, pairs, kind=kind)
        assert (status, inside.came) == (400 if kind == "http" else 403, [])


def test_every_answer_has_the_security_headers() -> None:
    inside = signed("GET", "/v1/status")
    for path, headers in (("/", HOST), ("/v1/status", inside), ("/v1/status", HOST)):
        _status, answer, _body, _inside = ask("GET", path, headers)
        policy = answer["content-security-policy"]
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in answer
    answer = ask("GET", "/v1/status", signed("GET", "/v1/status"))[1]
    assert answer["cache-control"] == "no-store"


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    etag = ask("GET", "/app.css", HOST)[1]["etag"]
    status, _answer, body, _inside = ask("GET", "/app.css", {**HOST, "if-none-match": etag})
    assert (status, body) == (304, b"")


@pytest.mark.parametrize("path", [*PATHS, "/metrics/", "/Metrics", "/v1/../metrics"])
@pytest.mark.parametrize("method", METHODS)
def test_the_token_for_the_metrics_reads_them_and_nothing_else(method: str, path: str) -> None:
    headers = {**HOST, "authorization": f"Bearer {METRICS_TOKEN}"}
    status, _answer, _body, inside = ask(method, path, headers)
    is_allowed = (method, path) == ("GET", "/metrics")
    assert (status, inside.came) == ((200, [path]) if is_allowed else (401, []))


def test_the_metrics_need_their_whole_token_and_a_name_of_this_machine() -> None:
    good = f"Bearer {METRICS_TOKEN}"
    for given in (good[:-1], good + "m", good.lower(), METRICS_TOKEN, "Bearer ", "Bearer ÿ"):
        assert ask("GET", "/metrics", {**HOST, "authorization": given})[0] == 401
    elsewhere = {"host": "evil.example", "authorization": good}
    assert ask("GET", "/metrics", elsewhere)[0] == 403
    twice = [*HOST.items(), ("authorization", good), ("authorization", good)]
    assert ask("GET", "/metrics", twice)[0] == 400
