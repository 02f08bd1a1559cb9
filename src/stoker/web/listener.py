"""The page's port: opened only on request, and closed without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from stoker.api.app import make_app
from stoker.api.connection import Connection
from stoker.api.listen import make_config, part
from stoker.api.routes import ENDPOINTS
from stoker.errors import StokerError
from stoker.web.assets import load_assets
from stoker.web.door import LOOPBACK, TokensDoor
from stoker.web.feed import Feed
from stoker.web.live import Live, Tab
from stoker.web.token import read_token

if TYPE_CHECKING:
    import h11

    from stoker.engine.hub import Hub

# The first choice, so that a link stays the same from one day to the next.
USUAL_PORT = 7865
_BACKLOG = 128
_MAX_MESSAGE_BYTES = 64 * 1024
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - named to tell the names that lead to them


class TokenConnection(Connection):
    """A connection over TCP: whose it is, its token tells."""

    is_peer_allowed = staticmethod(lambda _sock: True)
    _is_upgraded = False

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand over to the WebSocket's own protocol; no further head will come."""
        self._is_upgraded = True
        self._head_came()
        super().handle_websocket_upgrade(event)

    def _expect_head(self) -> None:
        if not self._is_upgraded:
            super()._expect_head()


def bind_port(host: str, port: int | None) -> socket.socket:
    """Listen; without a port at the usual one, or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason: Exception | None = None
    for choice in (USUAL_PORT, 0) if port is None else (port,):
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, choice))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except (OSError, OverflowError) as error:
            sock.close()
            reason = error
        else:
            return sock
    raise StokerError(
        f"cannot listen at {host}:{port or USUAL_PORT}: {reason}; name another --port"
    )


class Listener:
    """Serves the page on one socket until it is closed."""

    def __init__(self, hub: Hub, sock: socket.socket, host: str) -> None:
        self._sock = sock
        self._token = read_token(hub.home)
        self._feed = Feed(hub, ENDPOINTS)
        self._live = Live(hub, self._feed, lambda: self._token)
        door = TokensDoor(
            make_app(hub),
            self._live,
            load_assets(),
            lambda: self._token,
            LOOPBACK | _names_of(host),
        )
        self._config = make_config(
            door,
            ws=WebSocketsSansIOProtocol,
            ws_max_size=_MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self.host = host
        self.port: int = sock.getsockname()[1]

    @property
    def tabs(self) -> set[Tab]:
        """Who looks on."""
        return self._live.tabs

    async def start(self) -> None:
        """Serve from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: TokenConnection(
                config=self._config, server_state=self._state, app_state={}, _loop=loop
            ),
            sock=self._sock,
            backlog=_BACKLOG,
        )

    async def close(self) -> None:
        """Serve no more; tabs learn that they should look for another daemon."""
        if self._server is not None:
            self._server.close()
        self._feed.close()
        with contextlib.suppress(asyncio.CancelledError):
            await part(self._state)


def _names_of(host: str) -> frozenset[str]:
    """By which names a browser may come to an address, beside those of the machine itself."""
    if host in LOOPBACK or host == "::1":
        return frozenset()
    names = {socket.gethostname().lower(), socket.getfqdn().lower()}
    if host not in _ANY:
        names.add(f"[{host}]" if ":" in host else host.lower())
    return frozenset(names)
