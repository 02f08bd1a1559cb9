"""One connection to the daemon's socket: accepted only from the owner, with time limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from stoker import wire
from stoker.api.peer_credentials import is_owner
from stoker.api.problem import MEDIA

# Seconds within which the head of a request must arrive, from the connection or from the previous
# answer on.
HEAD_TIMEOUT_S = 10.0


class Serving(ServerState):
    """The connections and requests of one server; none is added once it `is_ending`."""

    is_ending = False


class ServerConnection(H11Protocol):
    """The protocol of one connection. A connection of another user is dropped before a byte is read."""

    is_peer_allowed: Callable[[socket.socket], bool] = staticmethod(is_owner)
    head_timeout_s = HEAD_TIMEOUT_S
    _is_refused = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the owner, unless the server is ending: the event loop accepts connections until then."""
        is_ending = isinstance(self.server_state, Serving) and self.server_state.is_ending
        if is_ending or not self.is_peer_allowed(transport.get_extra_info("socket")):
            self._is_refused = True
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._head_came()
        if not self._is_refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. The timer runs while the head of a request is incomplete."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._open_cycle() is None:
            self._expect_head()
        else:
            self._head_came()

    def is_streaming(self) -> bool:
        """Whether an answer has begun and has not ended."""
        cycle = self._open_cycle()
        return cycle is not None and cycle.response_started

    def hang_up(self) -> None:
        """Close the connection, and a stream with it."""
        if not self.transport.is_closing():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP."""
        if self._open_cycle() is None:
            document = msgspec.json.encode(
                wire.Problem(title="Bad Request", status=400, detail=msg)
            )
            head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + document)
        self.transport.close()

    def _open_cycle(self) -> RequestResponseCycle | None:
        """Return the request that is not completely answered yet."""
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.hang_up)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
