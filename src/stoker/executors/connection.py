"""Connection to one supervisor: sends orders and receives reports."""

from __future__ import annotations

import contextlib
import socket

import msgspec

from stoker.executors.contract import Report, SupervisorReport
from stoker.supervisor.framing import SUPERVISOR_ORDERS
from stoker.supervisor.messages import Order


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The supervisor is ready and uses this version of the protocol."""

    protocol: int
    pid: int
    name: str = ""
    version: str = ""


class Busy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """The supervisor does not stop, because jobs run."""


REPLIES: msgspec.json.Decoder[SupervisorReport | Hello | Busy] = msgspec.json.Decoder(
    SupervisorReport | Hello | Busy
)
"""Decodes one line of a supervisor."""


class SupervisorConnection:
    """Sends orders to a supervisor over a socket, and receives its reports."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.socket = sock
        self.hello: Hello | None = None
        self.is_busy = False
        self._buffer = b""

    def send(self, *orders: Order) -> None:
        """Send orders in one write."""
        self.send_line(SUPERVISOR_ORDERS.encode(orders))

    def send_line(self, line: bytes) -> None:
        """Send encoded orders."""
        view = memoryview(line)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except OSError:
                return  # the supervisor is gone: `receive` returns None

    def receive(self) -> list[Report] | None:
        """Return all reports that have arrived; None once the supervisor is gone."""
        try:
            data = self.socket.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n")
        reports: list[Report] = []
        for reply in REPLIES.decode_lines(whole):
            if isinstance(reply, Hello):
                self.hello = reply
            elif isinstance(reply, Busy):
                self.is_busy = True
            else:
                reports.append(reply)
        return reports

    def hang_up(self) -> None:
        """Shut the socket down in both directions."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
