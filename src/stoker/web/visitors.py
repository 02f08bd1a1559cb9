"""Limits how many connections may wait at the page without having proved themselves.

Another user of the machine must not use up the daemon's descriptors. When there are too many, the oldest
connection of the same kind is closed for the new one, so the limit locks nobody out.
"""

from __future__ import annotations

import os
import resource
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.web.peer_user import user_of_peer

if TYPE_CHECKING:
    import asyncio

    from stoker.api.access import Scope

_KEY = "stoker.visit"
_MAX_SHARE = 512
_MIN_SHARE = 32


class Limits(NamedTuple):
    """How many connections of each kind may be open at once."""

    strangers: int
    own: int
    tabs: int


def limits_for(descriptors: int) -> Limits:
    """A quarter of the process' descriptors for the page; all others are for the queue itself."""
    share = min(_MAX_SHARE, max(_MIN_SHARE, descriptors // 4))
    return Limits(strangers=share // 8, own=share // 4, tabs=share // 2)


class Visit:
    """One connection that has not proved itself yet."""

    def __init__(self, transport: asyncio.Transport, kind: dict[Visit, None]) -> None:
        self._transport = transport
        self._kind = kind
        kind[self] = None

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed."""
        return self._transport.is_closing()

    def let_in(self) -> None:
        """Count it no more: it is the owner's."""
        self._kind.pop(self, None)

    def end(self) -> None:
        """Close the connection at once."""
        self._kind.pop(self, None)
        self._transport.abort()


class Visitors:
    """All connections that have not proved themselves: those of this user's processes, and others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._own: dict[Visit, None] = {}
        self._strangers: dict[Visit, None] = {}

    def admit(self, transport: asyncio.Transport) -> Visit:
        """Count a new connection; the oldest of its kind is closed if there are too many."""
        is_own = _is_own(transport.get_extra_info("socket"))
        kind = self._own if is_own else self._strangers
        limit = self._limits.own if is_own else self._limits.strangers
        for visit in [each for each in kind if each.is_over]:
            del kind[visit]
        while len(kind) >= limit:
            next(iter(kind)).end()
        return Visit(transport, kind)


def current_limits() -> Limits:
    """The limits for this process."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits_for(_MAX_SHARE * 4 if soft == resource.RLIM_INFINITY else soft)


def keep_visit(state: dict[str, Any], visit: Visit) -> None:
    """Note in a connection's state whose visit it is; its requests' scopes show it."""
    state[_KEY] = visit


def let_in(scope: Scope) -> None:
    """Count the connection of a request no more: it is the owner's."""
    visit = scope.get("state", {}).get(_KEY)
    if isinstance(visit, Visit):
        visit.let_in()


def _is_own(sock: socket.socket) -> bool:
    return sock.family == socket.AF_UNIX or user_of_peer(sock) == os.geteuid()
