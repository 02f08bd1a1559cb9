"""Access control: the socket that a request came through decides who sent it, never the request itself."""

from __future__ import annotations

from stoker.api.asgi import App, Receive, Scope, Send
from stoker.api.headers import find_browser, find_repeated
from stoker.api.problem import problem

_KEY = "stoker.from_owner"


def is_from_owner(scope: Scope) -> bool:
    """Whether a request came through a socket that has identified the owner."""
    return scope.get(_KEY) is True


def mark_owner(scope: Scope) -> None:
    """Mark a request as the owner's. Only code that serves an authenticated socket may call this."""
    scope[_KEY] = True


class OwnerAccess:
    """Wraps an app on the owner's own socket, where the kernel has identified every peer."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on as the owner's; refuse requests of browsers."""
        repeated = find_repeated(scope)
        browser = find_browser(scope)
        if repeated is not None or browser is not None:
            await _refuse(repeated, browser)(scope, receive, send)
            return
        mark_owner(scope)
        await self._app(scope, receive, send)


def _refuse(repeated: str | None, browser: str | None) -> App:
    if repeated is not None:
        return problem(400, f"the header {repeated} is there twice", {"connection": "close"})
    detail = (
        f"this socket is for command lines (http://stoker/), not for browsers: {browser} is wrong"
    )
    return problem(403, detail, {"connection": "close"})
