"""The supervisor's end of the connection to its client: orders come in, reports go out.

`hello` and `stop` mean the same in every version of the protocol, so that a client can tell a supervisor
of another version apart, and end it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

from stoker.supervisor.framing import SUPERVISOR_ORDERS, LineBuffer
from stoker.supervisor.messages import Order

# However much happens: a client that hears nothing for longer takes a line of short jobs for a long one.
_LONGEST_WAIT_S = 0.04


class ProtocolServer:
    """Speaks with one client; reports wait for company until something urgent is among them."""

    def __init__(self, poll: select.epoll) -> None:
        self.reports: list[str] = []
        self.urgent = False
        self._waiting_since: float | None = None
        self._poll = poll
        self._socket: socket.socket | None = None
        self._is_open = False
        self._inbox = LineBuffer()
        self._outbox = b""
        self._blocked = False

    def attach(self, client: socket.socket) -> None:
        """Begin to listen to a client."""
        client.setblocking(False)
        self._socket = client
        self._poll.register(client.fileno(), select.EPOLLIN)

    def open(self) -> None:
        """Let the client have all reports from now on."""
        self.reports.clear()
        self._is_open = True

    def detach(self) -> None:
        """Let go of the client, and forget what it was not told."""
        if self._socket is not None:
            self._poll.unregister(self._socket.fileno())
            self._socket.close()
        self._socket = None
        self._is_open = False
        self.urgent = self._blocked = False
        self._inbox = LineBuffer()
        self._outbox = b""

    def receive(self) -> list[Order] | None:
        """The orders that have arrived; None once the client has closed its end."""
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not data:
            return None
        return self._take_in(data)

    def drain(self) -> list[Order]:
        """The last orders of a client that has died."""
        assert self._socket is not None
        data = b""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while more := self._socket.recv(1 << 18):
                data += more
        return self._take_in(data)

    def _take_in(self, data: bytes) -> list[Order]:
        lines = self._inbox.take_in(data)
        return [order for line in lines for order in SUPERVISOR_ORDERS.decode(line)]

    def say(self, report: str) -> None:
        """Answer the client, whether it gets reports or not."""
        self._outbox += f"{report}\n".encode()

    def tell(self, report: str) -> None:
        """Report something that is not frequent."""
        self.reports.append(report)
        self.urgent = True

    def flush(self, late: bool) -> None:
        """Send reports if something is urgent, or if any have waited for long enough (late: they have)."""
        if not self._is_open:
            self.reports.clear()
            self.urgent = False
        elif self.reports and (self.urgent or late or self.is_overdue()):
            self._outbox += "\n".join([*self.reports, ""]).encode()
            self.reports.clear()
            self.urgent = False
            self._waiting_since = None
        if not self._outbox or self._socket is None:
            return
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the client is gone: its pidfd or end-of-file tells the loop
        self._outbox = self._outbox[sent:]
        if bool(self._outbox) != self._blocked:
            self._blocked = not self._blocked
            wanted = select.EPOLLIN | (select.EPOLLOUT if self._blocked else 0)
            self._poll.modify(self._socket.fileno(), wanted)

    def is_overdue(self) -> bool:
        """Whether reports have waited for company for too long."""
        if not self.reports:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= _LONGEST_WAIT_S

    def flush_all(self, patience_s: float | None = None) -> None:
        """Send everything that is left, before this process goes."""
        if self._socket is not None:
            self._socket.settimeout(patience_s)
            reports = "\n".join([*self.reports, ""]).encode() if self._is_open else b""
            with contextlib.suppress(OSError):
                self._socket.sendall(self._outbox + reports)
