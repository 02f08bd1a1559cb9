"""In front of the app on a TCP port: nobody gets past it without the token, or by another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.api.access import App, Receive, Scope, Send, mark_owner
from stoker.api.problem import problem
from stoker.web.assets import Asset
from stoker.web.token import is_same

LIVE_PATH = "/v1/live"
# Names that lead to this machine alone, by whatever port: `ssh -L` may use another one.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
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
_UNLESS_SAID = (b"cache-control", b"no-store")


class TokensDoor:
    """Passes on, as the owner's, what brings the token; the page's own files need none.

    A request must name this machine by one of `hosts`, so that no other site's name can lead here,
    and come from a page of that very name, if it comes from one. A WebSocket brings its token in its
    first message: browsers give it no headers.
    """

    def __init__(
        self,
        app: App,
        live: App,
        assets: Mapping[str, Asset],
        token: Callable[[], str],
        hosts: frozenset[str],
    ) -> None:
        self._app = app
        self._live = live
        self._assets = assets
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let in, or turn away."""
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
        else:
            await self._admit(scope, receive, _with_headers(send))

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: App
        stranger = self._stranger(scope)
        asset = self._assets.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if stranger is not None:
            answer = problem(403, stranger, {"connection": "close"})
        elif asset is not None:
            answer = asset
        elif not self._has_token(scope):
            headers = {"www-authenticate": "Bearer", "connection": "close"}
            answer = problem(401, "this needs the token: open the link of stoker web", headers)
        else:
            mark_owner(scope)
            answer = self._app
        await answer(scope, receive, send)

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        stranger = self._stranger(scope)
        if stranger is None and scope["path"] == LIVE_PATH and _header(scope, b"origin"):
            await self._live(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # answered as 403

    def _stranger(self, scope: Scope) -> str | None:
        """What is wrong with the names that a request goes by; None if nothing is."""
        host, origin = _header(scope, b"host"), _header(scope, b"origin")
        if host is None or _name_of(host) not in self._hosts:
            return f"this page goes by other names: {', '.join(sorted(self._hosts))}"
        if origin is not None and origin != f"http://{host}":
            return "pages from elsewhere have no business here"
        return None

    def _has_token(self, scope: Scope) -> bool:
        kind, _, given = (_header(scope, b"authorization") or "").partition(" ")
        return kind.lower() == "bearer" and is_same(given.strip(), self._token())


def _name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _header(scope: Scope, name: bytes) -> str | None:
    """The only value of a header; None if there is none, or more than one."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _with_headers(send: Send) -> Send:
    async def send_on(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))  # type: ignore[call-overload]
            if _UNLESS_SAID[0] not in {name.lower() for name, _value in headers}:
                headers.append(_UNLESS_SAID)
            message = {**message, "headers": headers + _ALWAYS}
        await send(message)

    return send_on  # type: ignore[return-value]
