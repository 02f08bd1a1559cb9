"""A connection to one shepherd: lists of messages go there, reports come back."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

import msgspec

from stoker.executors.contract import Report


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The shepherd is ready."""

    protocol: int
    pid: int


_replies = msgspec.json.Decoder(Report | Hello)


class Line:
    """Speaks with a shepherd over a socket."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self.socket = sock
        self._buffer = b""

    def send(self, *messages: Sequence[object]) -> None:
        """Send messages in one write."""
        view = memoryview(f"{json.dumps(messages)}\n".encode())
        while view:
            try:
                view = view[self.socket.send(view) :]
            except ConnectionError:
                return  # the shepherd is gone: `receive` tells

    def receive(self) -> list[Report] | None:
        """All reports that have arrived; None once the shepherd is gone."""
        try:
            data = self.socket.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not data:
            return None
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n")
        replies = _replies.decode_lines(whole)
        return [reply for reply in replies if not isinstance(reply, Hello)]
