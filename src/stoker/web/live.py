"""One tab's WebSocket: what it watches and the logs it follows, and never more in memory than that."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from stoker import __version__
from stoker.api.access import Receive, Scope, Send
from stoker.api.problem import answer_error
from stoker.api.query import read_query
from stoker.api.routes.log import Query as LogQuery
from stoker.api.routes.log import open_log
from stoker.errors import NotFoundError, UsageError
from stoker.web import words
from stoker.web.token import is_same

if TYPE_CHECKING:
    from stoker.engine.hub import Hub
    from stoker.web.feed import Feed

# Private codes of a WebSocket's end: the page tells them apart.
WRONG_TOKEN = 4401
TOO_MANY = 4429
NOT_UNDERSTOOD = 4400
_HELLO_TIMEOUT_S = 10.0
_MAX_TABS = 256
_MAX_WATCHES = 64
_LOG_HEAD = struct.Struct("<I")

_decode = msgspec.json.Decoder(words.Said).decode
_encode = msgspec.json.Encoder().encode


class Live:
    """All tabs."""

    def __init__(self, hub: Hub, feed: Feed, token: Callable[[], str]) -> None:
        self._hub = hub
        self._feed = feed
        self._token = token
        self.tabs: set[Tab] = set()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a tab until it goes."""
        if (await receive())["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        code = await self._refusal(receive)
        if code is not None:
            await send({"type": "websocket.close", "code": code})
            return
        tab = Tab(self._hub, self._feed, send)
        self.tabs.add(tab)
        try:
            await tab.serve(receive)
        finally:
            self.tabs.discard(tab)

    async def _refusal(self, receive: Receive) -> int | None:
        """Why a tab does not get in; None if it has said the token."""
        try:
            message = await asyncio.wait_for(receive(), _HELLO_TIMEOUT_S)
        except asyncio.TimeoutError:
            return WRONG_TOKEN
        said = _read(message)
        if not isinstance(said, words.Hello) or not is_same(said.token, self._token()):
            return WRONG_TOKEN
        return TOO_MANY if len(self.tabs) >= _MAX_TABS else None


class Tab:
    """A browser's tab. Of each thing it watches only the newest answer waits to be sent.

    So one that reads slowly, or not at all, costs a page of memory and holds up nobody: it misses
    what was true meanwhile, and gets what is true when it reads on.
    """

    def __init__(self, hub: Hub, feed: Feed, send: Send) -> None:
        self._hub = hub
        self._feed = feed
        self._send = send
        self._waiting: dict[int, str] = {}
        self._awake = asyncio.Event()
        self._logs: dict[int, asyncio.Task[None]] = {}
        self._watched: set[int] = set()

    async def serve(self, receive: Receive) -> None:
        """Do as the tab says until it goes."""
        await self._say(words.Welcome(__version__, socket.gethostname(), self._hub.home))
        sending = asyncio.ensure_future(self._send_on())
        reading = asyncio.ensure_future(self._read_on(receive))
        try:
            await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.forget(self)
            tasks = (sending, reading, *self._logs.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_on(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            said = _read(message)
            match said:
                case words.Watch():
                    await self._watch(said)
                case words.Follow():
                    self._follow(said)
                case words.Drop():
                    self._drop(said.id)
                case _:
                    await self._close(NOT_UNDERSTOOD)
                    return

    async def _watch(self, said: words.Watch) -> None:
        self._drop(said.id)
        if not self._feed.can_watch(said.path) or not said.query.isascii():
            self._refuse(said.id, NotFoundError(f"there is nothing to watch at {said.path!r}"))
        elif self._is_full():
            self._refuse(said.id, UsageError(f"a tab can watch {_MAX_WATCHES} things, no more"))
        else:
            self._watched.add(said.id)
            await self._feed.watch(
                self, said.id, said.path, said.query, lambda text: self._put(said.id, text)
            )

    def _follow(self, said: words.Follow) -> None:
        self._drop(said.id)
        if self._is_full():
            self._refuse(said.id, UsageError(f"a tab can watch {_MAX_WATCHES} things, no more"))
        else:
            self._logs[said.id] = asyncio.ensure_future(self._send_log(said.id, said.query))

    def _is_full(self) -> bool:
        return len(self._watched) + len(self._logs) >= _MAX_WATCHES

    def _drop(self, number: int) -> None:
        self._feed.forget(self, number)
        self._watched.discard(number)
        self._waiting.pop(number, None)
        log = self._logs.pop(number, None)
        if log is not None:
            log.cancel()

    def _refuse(self, number: int, error: Exception) -> None:
        self._put(number, words.problem_frame(number, bytes(answer_error(error).body)))

    def _put(self, number: int, text: str) -> None:
        self._waiting[number] = text
        self._awake.set()

    async def _send_on(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._waiting:
                number = next(iter(self._waiting))
                began = time.monotonic()
                await self._send({"type": "websocket.send", "text": self._waiting.pop(number)})
                self._feed.charge(time.monotonic() - began)

    async def _send_log(self, number: int, query: str) -> None:
        """Send a log's bytes, each behind the number it was asked by, and say when it is over."""
        try:
            wanted = read_query(query.encode("utf-8"), LogQuery)
            log = await open_log(self._hub, wanted, follow=True)
        except Exception as error:
            self._refuse(number, error)
            return
        head = _LOG_HEAD.pack(number)
        await self._say(words.Begin(number, log.job, log.attempt, log.offset))
        async with contextlib.aclosing(log.chunks) as chunks:
            async for chunk in chunks:
                await self._send({"type": "websocket.send", "bytes": head + chunk})
        await self._say(words.End(number))

    async def _say(self, message: msgspec.Struct) -> None:
        await self._send({"type": "websocket.send", "text": _encode(message).decode("utf-8")})

    async def _close(self, code: int) -> None:
        await self._send({"type": "websocket.close", "code": code})


def _read(message: Any) -> words.Said | None:
    """What a tab has said; None if nobody can understand it."""
    text = message.get("text") if message["type"] == "websocket.receive" else None
    try:
        return None if text is None else _decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
