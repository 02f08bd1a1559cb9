"""The supervisor's end of the connection to its client: orders come in, reports go out.

`hello` and `stop` are the same in every version of the protocol, so that a client can recognise a supervisor
of another version, and end it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time

from stoker.supervisor.framing import SUPERVISOR_ORDERS, LineBuffer
from stoker.supervisor.messages import Order

# A client without reports for longer would take many short jobs for a long one.
_MAX_DELAY_S = 0.04


class ProtocolServer:
    """Serves one client. Collects reports, and sends them when one is urgent or has waited long enough."""

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
        """Begin to receive orders of a client."""
        client.setblocking(False)
        self._socket = client
        self._poll.register(client.fileno(), select.EPOLLIN)

    def open(self) -> None:
        """Send all reports to the client from now on."""
        self.reports.clear()
        self._is_open = True

    def detach(self) -> None:
        """Close the connection, and forget reports that were not sent."""
        if self._socket is not None:
            self._poll.unregister(self._socket.fileno())
            self._socket.close()
        self._socket = None
        self._is_open = False
        self.urgent = self._blocked = False
        self._inbox = LineBuffer()
        self._outbox = b""

    def receive(self) -> list[Order] | None:
        """Return the orders that have arrived; None once the client has closed its end."""
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
        """Return the last orders of a client that has died."""
        assert self._socket is not None
        data = b""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while more := self._socket.recv(1 << 18):
                data += more
        return self._take_in(data)

    def _take_in(self, data: bytes) -> list[Order]:
        lines = self._inbox.take_in(data)
        return [order for line in lines for order in SUPERVISOR_ORDERS.decode(line)]

    def answer(self, report: str) -> None:
        """Send an answer to the client, even before `open`."""
        self._outbox += f"{report}\n".encode()

    def report(self, report: str) -> None:
        """Send a report soon."""
        self.reports.append(report)
        self.urgent = True

    def flush(self, late: bool) -> None:
        """Send the reports if one is urgent, or if they have waited long enough (`late`: they have)."""
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
            return  # the client is gone: the loop notices its pidfd or end-of-file
        self._outbox = self._outbox[sent:]
        if bool(self._outbox) != self._blocked:
            self._blocked = not self._blocked
            wanted = select.EPOLLIN | (select.EPOLLOUT if self._blocked else 0)
            self._poll.modify(self._socket.fileno(), wanted)

    def is_overdue(self) -> bool:
        """Whether reports have waited long enough."""
        if not self.reports:
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= _MAX_DELAY_S

    def flush_all(self, timeout_s: float | None = None) -> None:
        """Send everything that is left, before this process ends."""
        if self._socket is not None:
            self._socket.settimeout(timeout_s)
            reports = "\n".join([*self.reports, ""]).encode() if self._is_open else b""
            with contextlib.suppress(OSError):
                self._socket.sendall(self._outbox + reports)
