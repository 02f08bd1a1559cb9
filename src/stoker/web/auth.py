"""Access check of the page: accepts only requests that a session has signed, and reads of the metrics."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.api.access import mark_owner
from stoker.api.asgi import App, Receive, Scope, Send
from stoker.api.endpoints import METRICS_PATH
from stoker.api.headers import find_repeated, header, name_of
from stoker.api.problem import RefusedError, problem
from stoker.api.query import read_query
from stoker.api.response import Response
from stoker.web.assets import Asset
from stoker.web.messages import Nonce
from stoker.web.visitors import let_in

if TYPE_CHECKING:
    from stoker.web.sessions import Sessions

LIVE_PATH = "/v1/live"
PROVE_PATH = "/prove"
_CSP = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
_ALWAYS = [
    (b"content-security-policy", _CSP),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_EMPTY = hashlib.sha256().hexdigest()
_DEFAULT_CACHE = (b"cache-control", b"no-store")


class _ProveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nonce that the daemon signs."""

    nonce: Nonce


class TokenAuth:
    """Forwards signed requests to the app as requests of the owner. The page's files need no signature.

    The Host header must be one of `hosts`, which prevents DNS rebinding. An Origin header must match it.
    A WebSocket proves itself with its first messages, because browsers cannot set its headers. Monitoring
    cannot sign: it sends a token of its own, with which it may read the metrics and nothing else.
    """

    def __init__(
        self,
        app: App,
        live: App,
        assets: Mapping[str, Asset],
        sessions: Sessions,
        metrics_token: str,
        hosts: frozenset[str],
    ) -> None:
        self._app = app
        self._live = live
        self._assets = assets
        self._sessions = sessions
        self._metrics_bearer = f"Bearer {metrics_token}".encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request."""
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
        else:
            await self._admit(scope, receive, _with_headers(send))

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_names(scope)
            if scope["method"] in ("GET", "HEAD"):
                if (asset := self._assets.get(scope["path"])) is not None:
                    await asset(scope, receive, send)
                    return
                if scope["path"] == PROVE_PATH:
                    await self._prove(scope)(scope, receive, send)
                    return
            digest = _EMPTY if self._is_monitoring(scope) else self._check_signature(scope)
        except RefusedError as error:
            refusal = problem(error.status, error.detail, error.headers)
            await refusal(scope, receive, send)
            return
        mark_owner(scope)
        let_in(scope)
        await self._app(scope, _check_body(receive, digest), send)

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_names(scope)
            is_ours = scope["path"] == LIVE_PATH and header(scope, b"origin") is not None
        except RefusedError:
            is_ours = False
        if is_ours:
            await self._live(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # answered as 403

    def _check_names(self, scope: Scope) -> None:
        """Refuse a request with an unknown host name, or from another site's page."""
        repeated = find_repeated(scope)
        if repeated is not None:
            raise RefusedError(400, f"the header {repeated} is repeated", hang_up=True)
        host, origin = header(scope, b"host"), header(scope, b"origin")
        if host is None or name_of(host) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            raise RefusedError(403, f"unknown host name; this page is at: {names}", hang_up=True)
        if origin is not None and origin != f"http://{host}":
            raise RefusedError(403, "requests from pages of other sites are refused", hang_up=True)

    def _is_monitoring(self, scope: Scope) -> bool:
        """Whether a request reads the metrics, with the token for that."""
        if scope["path"] != METRICS_PATH or scope["method"] != "GET":
            return False
        given = (header(scope, b"authorization") or "").encode("utf-8", "replace")
        return hmac.compare_digest(given, self._metrics_bearer)

    def _check_signature(self, scope: Scope) -> str:
        """Return the digest that the body must have; refuse a request that no session has signed."""
        target = scope["raw_path"].decode("ascii")
        if scope["query_string"]:
            target += f"?{scope['query_string'].decode('ascii')}"
        given = header(scope, b"authorization") or ""
        authorization = self._sessions.find_request(scope["method"], target, given)
        if authorization is None:
            remedy = (
                "this needs the token in the file metrics-token of the home of Stoker, as a bearer token"
                if scope["path"] == METRICS_PATH
                else "this needs an authenticated page: open the link that stoker web prints"
            )
            raise RefusedError(
                401,
                remedy,
                hang_up=True,
                headers={"www-authenticate": "Stoker"},
            )
        return authorization.digest

    def _prove(self, scope: Scope) -> App:
        """Return the proof that this is the daemon, which `stoker web` asks for."""
        query = read_query(scope["query_string"], _ProveQuery)
        body = msgspec.json.encode(self._sessions.challenge(query.nonce))
        return Response(body, headers={"connection": "close"}, media="application/json")


def _check_body(receive: Receive, digest: str) -> Receive:
    """Refuse a body that is not the signed one when it has come completely."""
    found = hashlib.sha256()

    async def receive_checked() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.request":
            found.update(message.get("body", b""))
            if not message.get("more_body", False) and found.hexdigest() != digest:
                raise RefusedError(400, "the body is not the one that was signed", hang_up=True)
        return message

    return receive_checked


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))  # type: ignore[call-overload]
            if _DEFAULT_CACHE[0] not in {name.lower() for name, _value in headers}:
                headers.append(_DEFAULT_CACHE)
            message = {**message, "headers": headers + _ALWAYS}
        await send(message)

    return send_with_headers  # type: ignore[return-value]
