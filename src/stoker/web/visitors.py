"""Limits the number of unauthenticated connections to the page.

Another user of the machine must not use up the daemon's file descriptors. At the limit, a new connection
replaces the oldest one of its kind, so the limit never locks the owner out.
"""

from __future__ import annotations

import os
import resource
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.web.peer_user import user_of_peer

if TYPE_CHECKING:
    import asyncio

    from stoker.api.asgi import Scope

_KEY = "stoker.visit"
_MAX_SHARE = 512
_MIN_SHARE = 32


class Limits(NamedTuple):
    """How many connections of each kind may be open at once."""

    strangers: int
    own: int
    tabs: int


def limits_for(descriptors: int) -> Limits:
    """Return the limits: the page gets a quarter of the descriptors, the queue keeps the rest."""
    share = min(_MAX_SHARE, max(_MIN_SHARE, descriptors // 4))
    return Limits(strangers=share // 8, own=share // 4, tabs=share // 2)


class Visit:
    """One unauthenticated connection."""

    def __init__(self, transport: asyncio.Transport, kind: dict[Visit, None]) -> None:
        self._transport = transport
        self._kind = kind
        kind[self] = None

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed."""
        return self._transport.is_closing()

    def let_in(self) -> None:
        """Stop counting it: it is authenticated."""
        self._kind.pop(self, None)

    def end(self) -> None:
        """Close the connection at once."""
        self._kind.pop(self, None)
        self._transport.abort()


class Visitors:
    """All unauthenticated connections, those of the owner's processes apart from others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._own: dict[Visit, None] = {}
        self._strangers: dict[Visit, None] = {}

    def admit(self, transport: asyncio.Transport) -> Visit:
        """Count a new connection; at the limit, close the oldest of its kind."""
        is_own = _is_own(transport.get_extra_info("socket"))
        kind = self._own if is_own else self._strangers
        limit = self._limits.own if is_own else self._limits.strangers
        for visit in [each for each in kind if each.is_over]:
            del kind[visit]
        while len(kind) >= limit:
            next(iter(kind)).end()
        return Visit(transport, kind)


def current_limits() -> Limits:
    """Return the limits for this process."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits_for(_MAX_SHARE * 4 if soft == resource.RLIM_INFINITY else soft)


def keep_visit(state: dict[str, Any], visit: Visit) -> None:
    """Store a visit in the state of its connection, which its requests share."""
    state[_KEY] = visit


def let_in(scope: Scope) -> None:
    """Stop counting the connection of a request: it is authenticated."""
    visit = scope.get("state", {}).get(_KEY)
    if isinstance(visit, Visit):
        visit.let_in()


def _is_own(sock: socket.socket) -> bool:
    return sock.family == socket.AF_UNIX or user_of_peer(sock) == os.geteuid()
