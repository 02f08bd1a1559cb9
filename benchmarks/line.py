"""Minimal client, as a lower bound: one socket, written and read directly."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from benchmarks.errors import BenchError

_TIMEOUT_S = 60.0
_PIECE_BYTES = 65536


class Line:
    """One connection to a daemon, kept from request to request."""

    def __init__(self, home: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.connect(os.path.join(home, "stoker.sock"))

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def get(self, target: str) -> bytes:
        """Ask for something, and return the body of the answer."""
        return self._ask(f"GET {target}", "", b"")

    def post(self, target: str, order: dict[str, Any]) -> bytes:
        """Give an order, and return the body of the answer."""
        body = json.dumps(order).encode()
        headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return self._ask(f"POST {target}", headers, body)

    def _ask(self, what: str, headers: str, body: bytes) -> bytes:
        head = f"{what} HTTP/1.1\r\nhost: stoker\r\n{headers}\r\n"
        self._socket.sendall(head.encode() + body)
        answer = self._socket.recv(_PIECE_BYTES)
        while (end := answer.find(b"\r\n\r\n")) < 0:
            answer += self._more()
        status, length = read_head(answer[:end])
        body = answer[end + 4 :]
        while len(body) < length:
            body += self._more()
        if status != 200:
            raise BenchError(f"{what} was answered with {status}: {body.decode()}")
        return body

    def json(self, target: str) -> Any:
        """Ask for something, and return what the answer says."""
        return json.loads(self.get(target))

    def follow(self, target: str) -> socket.socket:
        """Ask for a stream, and return the socket on which it comes."""
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nhost: stoker\r\n\r\n".encode())
        return self._socket

    def _more(self) -> bytes:
        data = self._socket.recv(_PIECE_BYTES)
        if not data:
            raise BenchError("the daemon hung up in the middle of an answer")
        return data


def read_head(head: bytes) -> tuple[int, int]:
    """Return the status of an answer and the length of its body."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), int(headers.get("content-length", 0))
