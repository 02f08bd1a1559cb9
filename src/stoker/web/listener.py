"""Serves the page on a TCP port and on a unix socket that only the owner can open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from stoker.api.app import Api
from stoker.api.connection import ServerConnection, Serving
from stoker.api.endpoints import ENDPOINTS
from stoker.api.headers import LOOPBACK
from stoker.api.peer_credentials import is_owner
from stoker.api.server import ACCEPT_AT_ONCE, make_config, part
from stoker.api.server import ApiServer as UnixSocket
from stoker.web.assets import load_assets
from stoker.web.auth import TokenAuth
from stoker.web.sessions import Sessions
from stoker.web.subscriptions import Subscriptions
from stoker.web.tab_connection import Tab, TabConnections
from stoker.web.visitors import Visitors, current_limits, keep_visit

if TYPE_CHECKING:
    import h11

    from stoker.engine.context import QueueContext

_MAX_MESSAGE_BYTES = 64 * 1024
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class TokenConnection(ServerConnection):
    """A TCP connection. Every user may connect; the signatures of requests show who the owner is."""

    is_peer_allowed = staticmethod(lambda sock: True)  # noqa: ARG005 - the caller names it
    visitors: Visitors
    _is_upgraded = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection and count it."""
        super().connection_made(transport)
        if not transport.is_closing():
            keep_visit(self.app_state, self.visitors.admit(transport))

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Change to the WebSocket protocol; no further request head will come."""
        self._is_upgraded = True
        self._head_came()
        super().handle_websocket_upgrade(event)

    def _expect_head(self) -> None:
        if not self._is_upgraded:
            super()._expect_head()


class SocketConnection(TokenConnection):
    """A connection over the unix socket: from the owner, according to the kernel, and signed too.

    The connecting process can be sshd, and then any user on the other computer.
    """

    is_peer_allowed = staticmethod(is_owner)


class WebListener:
    """Serves the page until it is closed. `sock` is None for a page without a TCP port."""

    def __init__(
        self,
        context: QueueContext,
        sock: socket.socket | None,
        unix_socket: UnixSocket,
        address: tuple[str, int],
        sessions: Sessions,
        metrics_token: str,
    ) -> None:
        self._sock = sock
        self._unix_socket = unix_socket
        self._subscriptions = Subscriptions(context, ENDPOINTS)
        limits = current_limits()
        self._tab_connections = TabConnections(context, self._subscriptions, sessions, limits.tabs)
        self.host, self.port = address
        auth = TokenAuth(
            Api(context),
            self._tab_connections,
            load_assets(),
            sessions,
            metrics_token,
            LOOPBACK | _names_of(self.host),
        )
        self._config = make_config(
            auth,
            ws=WebSocketsSansIOProtocol,
            ws_max_size=_MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
        )
        self._state = Serving()
        self._visitors = Visitors(limits)
        self._servers: list[asyncio.Server] = []

    @property
    def tabs(self) -> set[Tab]:
        """The connected tabs."""
        return self._tab_connections.tabs

    async def start(self) -> None:
        """Start to serve."""
        loop = asyncio.get_running_loop()
        if self._sock is not None:
            self._servers.append(
                await loop.create_server(
                    lambda: self._connect(TokenConnection), sock=self._sock, backlog=ACCEPT_AT_ONCE
                )
            )
        self._servers.append(
            await loop.create_unix_server(
                lambda: self._connect(SocketConnection),
                sock=self._unix_socket,
                backlog=ACCEPT_AT_ONCE,
            )
        )

    async def close(self) -> None:
        """Stop serving; the tabs then try to reconnect."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._unix_socket.path)
        for server in self._servers:
            server.close()
        self._subscriptions.close()
        with contextlib.suppress(asyncio.CancelledError):
            await part(self._state)

    def _connect(self, kind: type[TokenConnection]) -> TokenConnection:
        connection = kind(
            config=self._config,
            server_state=self._state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )
        connection.visitors = self._visitors
        return connection


def _names_of(host: str) -> frozenset[str]:
    """Return the host names that browsers may use for an address, in addition to the loopback names."""
    if host in LOOPBACK or host in ("::1", "none"):
        return frozenset()
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    if host not in _ANY:
        names.add(f"[{host}]" if ":" in host else host.lower())
    return frozenset(names)
