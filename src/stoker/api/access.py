"""Who asks. The door through which a request came says so; no request is believed on its own."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from stoker.api.headers import find_browser, find_repeated
from stoker.api.problem import problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_KEY = "stoker.asker"


class Asker(enum.Enum):
    """Whom a route may let in; a route that names nobody lets nobody in."""

    OWNER = "owner"


def asker_of(scope: Scope) -> Asker | None:
    """Who sent a request; None for a request that came through no door of ours."""
    found = scope.get(_KEY)
    return found if isinstance(found, Asker) else None


def mark_owner(scope: Scope) -> None:
    """Note that a request is the owner's; only a door may say so."""
    scope[_KEY] = Asker.OWNER


class OwnerAccess:
    """In front of an app on the owner's own socket, where the kernel has named every peer."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on as the owner's; refuse those of browsers."""
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
