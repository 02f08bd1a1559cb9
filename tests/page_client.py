"""A tab without a browser: it proves itself to a page and signs its requests, as the real one does."""

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
    """One tab. `host` is what it believes to be the address of the page."""

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

    def let_in(self, secret: str, by: str = "token") -> Any:
        """Prove to know a secret, and see the daemon prove it; what the daemon says then, or None."""
        nonce = new_nonce()
        self.socket.send(json.dumps({"type": "hello", "nonce": nonce}))
        challenge = self.hear()
        proof = challenge.get("proof" if by == "token" else "handover")
        self.is_proven = proof == server_proof(secret, nonce, challenge["nonce"])
        own = page_proof(secret, nonce, challenge["nonce"])
        self.socket.send(json.dumps({"type": "prove", "proof": own, "by": by}))
        try:
            welcome = self.hear()
        except ConnectionClosed:
            return None
        self.session = Session(secret, nonce, challenge["nonce"])
        assert welcome["type"] == "welcome"
        return welcome

    def say(self, **message: object) -> None:
        """Say something, signed."""
        assert self.session is not None
        self.socket.send(self.session.sign_message(json.dumps(message)))

    def hear(self) -> Any:
        """The next message."""
        heard = self.socket.recv(PATIENCE_S)
        return json.loads(heard) if isinstance(heard, str) else heard

    def hear_until(self, fits: Callable[[Any], bool]) -> Any:
        """The next message like that."""
        while not fits(heard := self.hear()):
            pass
        return heard

    def sign(self, method: str, target: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a signed request."""
        assert self.session is not None
        self._number += 1
        headers = {"authorization": self.session.sign_request(method, target, body, self._number)}
        if body:
            headers["content-type"] = "application/json"
        return headers

    def ask(self, target: str, body: object = None, **headers: str) -> int:
        """The status of the answer to a signed request: a GET, or a POST of this body."""
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        return self.send(method, target, data, {**self.sign(method, target, data), **headers})

    def send(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> int:
        """The status of the answer to a request as it is."""
        return ask(self.port, target, headers, method=method, body=body, path=self.path)

    def close(self) -> None:
        """Hang up."""
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
    """The status of the answer to a request, over the port or the unix socket at a path."""
    connection: http.client.HTTPConnection
    if path is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    else:
        connection = _UnixConnection(path)
    try:
        with contextlib.suppress(BrokenPipeError):  # it was refused before all of it was sent
            connection.request(method, target, body=body or None, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def ask_by(port: int, token: str, target: str = "/v1/status", **more: Any) -> int:
    """The status of the answer to a tab that comes with a token; 401 if it is not let in."""
    with PageClient(port, **more) as tab:
        return REFUSED if tab.let_in(token) is None else tab.ask(target)
