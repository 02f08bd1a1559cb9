"""A connection to one supervisor: orders go there, reports come back."""

from __future__ import annotations

import contextlib
import socket

import msgspec

from stoker.executors.contract import Heard, Report
from stoker.supervisor.framing import SUPERVISOR_ORDERS
from stoker.supervisor.messages import Order


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The supervisor is ready, and speaks this version of the protocol."""

    protocol: int
    pid: int
    name: str = ""
    version: str = ""


class Busy(msgspec.Struct, frozen=True, array_like=True, tag="busy"):
    """The supervisor was asked to go, and stays: something runs."""


REPLIES: msgspec.json.Decoder[Heard | Hello | Busy] = msgspec.json.Decoder(Heard | Hello | Busy)
"""Decodes what a supervisor says, line by line."""


class SupervisorConnection:
    """Speaks with a supervisor over a socket."""

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
        """Send orders that are encoded already."""
        view = memoryview(line)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except OSError:
                return  # the supervisor is gone: `receive` tells

    def receive(self) -> list[Report] | None:
        """All reports that have arrived; None once the supervisor is gone."""
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
        """Neither send nor receive any more."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
