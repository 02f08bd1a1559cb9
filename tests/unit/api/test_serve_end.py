"""Once `serve` has returned, no request uses what the daemon closes next."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from stoker.api import server
from stoker.api.server import bind, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stoker.api.asgi import Receive, Scope, Send

ASK = b"GET / HTTP/1.1\r\nhost: stoker\r\n\r\n"
TURNS = 40  # of the event loop; a request takes fewer from its connection to its answer


class Recorder:
    """An app that notes how far its requests came, and which of them ran after the server's end."""

    def __init__(self) -> None:
        self.is_over = False
        self.begun = 0
        self.late: list[str] = []
        self.wait: asyncio.Event | None = None

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.begun += 1
        self._note("begun")
        if self.wait is not None:
            try:
                await self.wait.wait()
            except asyncio.CancelledError:
                self._note("cancelled")
                raise
            self._note("done")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    def _note(self, what: str) -> None:
        if self.is_over:
            self.late.append(what)


@contextlib.contextmanager
def asking(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(ASK)
        client.setblocking(False)
        yield client


@pytest.mark.parametrize("turns", range(12))
def test_no_request_begins_after_the_end_whenever_its_client_has_connected(
    tmp_path: Path, turns: int
) -> None:
    app = Recorder()
    path = str(tmp_path / "stoker.sock")

    async def scene() -> bytes:
        server = asyncio.ensure_future(serve(app, bind(path)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with asking(path) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await server
            app.is_over = True
            for _ in range(TURNS):
                await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                return client.recv(100)
            return b""

    answer = asyncio.run(scene())

    assert app.late == []
    assert answer.startswith(b"HTTP/1.1 204") if app.begun else answer == b""


def test_a_request_that_takes_too_long_is_cancelled_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE_S", 0.01)
    app = Recorder()
    path = str(tmp_path / "stoker.sock")

    async def scene() -> None:
        app.wait = asyncio.Event()
        server = asyncio.ensure_future(serve(app, bind(path)))
        await asyncio.sleep(0)
        with asking(path):
            while not app.begun:
                await asyncio.sleep(0)
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await server
            app.is_over = True
            app.wait.set()
            for _ in range(TURNS):
                await asyncio.sleep(0)

    asyncio.run(scene())

    assert app.late == []
