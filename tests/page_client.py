"""A tab without a browser: it signs in to a page and signs its requests, like the real one."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect, unix_connect
from websockets.typing import Origin

from patience import PATIENCE_S
from stoker.web.handshake import Session, new_nonce, page_proof, server_proof

REFUSED = 401


class PageClient:
    """One tab. `host` is the address that it uses for the page."""

    def __init__(self, port: int, *, path: str | None = None, host: str = "127.0.0.1") -> None:
        self.port = port
        self.path = path
        self.host = f"{host}:{port}"
        self.session: Session | None = None
        self.is_proven = False
        self._number = 0
        url = f"ws://{self.host}/v1/live"
        more: dict[str, Any] = {
            "origin": Origin(f"http://{self.host}"),
            "max_size": None,
            "close_timeout": 1,
        }
        self.socket: ClientConnection
        self._stack = contextlib.ExitStack()
        if path is not None:
            self.socket = self._stack.enter_context(unix_connect(path, url, **more))
        else:
            self.socket = self._stack.enter_context(
                connect(f"ws://127.0.0.1:{port}/v1/live", **more)
            )

    def __enter__(self) -> PageClient:  # noqa: PYI034 - typing has Self from 3.11 on
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def sign_in(self, secret: str, by: str = "token") -> Any:
        """Do the handshake with a secret; return the welcome, None if it is refused."""
        nonce = new_nonce()
        self.socket.send(json.dumps({"type": "hello", "nonce": nonce}))
        challenge = self.receive()
        proof = challenge.get("proof" if by == "token" else "handover")
        self.is_proven = proof == server_proof(secret, nonce, challenge["nonce"])
        own = page_proof(secret, nonce, challenge["nonce"])
        self.socket.send(json.dumps({"type": "prove", "proof": own, "by": by}))
        try:
            welcome = self.receive()
        except ConnectionClosed:
            return None
        self.session = Session(secret, nonce, challenge["nonce"])
        assert welcome["type"] == "welcome"
        return welcome

    def send_message(self, **message: object) -> None:
        """Send a signed message."""
        assert self.session is not None
        self.socket.send(self.session.sign_message(json.dumps(message)))

    def receive(self) -> Any:
        """Return the next message."""
        message = self.socket.recv(PATIENCE_S)
        return json.loads(message) if isinstance(message, str) else message

    def receive_until(self, fits: Callable[[Any], bool]) -> Any:
        """Return the next message that fits."""
        while not fits(message := self.receive()):
            pass
        return message

    def sign(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """Return the headers of a signed request."""
        assert self.session is not None
        self._number += 1
        headers = {"authorization": self.session.sign_request(method, target, body, self._number)}
        if body:
            headers["content-type"] = "application/json"
        return headers

    def ask(self, target: str, body: object = None, **headers: str) -> int:
        """Return the status of a signed request: a GET, or a POST of this body."""
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        return self.send(method, target, data, {**self.sign(method, target, data), **headers})

    def send(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of a request as given."""
        return ask(self.port, target, headers, method=method, body=body, path=self.path)

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("127.0.0.1", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(self._path)


def ask(
    port: int,
    target: str = "/v1/status",
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes = b"",
    path: str | None = None,
) -> int:
    """Return the status of a request, over the port or the unix socket at a path."""
    connection: http.client.HTTPConnection
    if path is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    else:
        connection = _UnixConnection(path)
    try:
        with contextlib.suppress(BrokenPipeError):  # refused before all of it was sent
            connection.request(method, target, body=body or None, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def ask_by(port: int, token: str, target: str = "/v1/status", **more: Any) -> int:
    """Return the status of a request of a tab with a token; 401 if the token is refused."""
    with PageClient(port, **more) as tab:
        return REFUSED if tab.sign_in(token) is None else tab.ask(target)
