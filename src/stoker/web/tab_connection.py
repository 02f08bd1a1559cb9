"""The WebSocket of a browser tab: the answers it watches and the logs it follows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import msgspec

from stoker import __version__
from stoker.api.asgi import Receive, Scope, Send
from stoker.api.problem import answer_error
from stoker.api.query import read_query
from stoker.api.routes.log import LogQuery as LogQuery
from stoker.api.routes.log import open_log
from stoker.errors import NotFoundError, UsageError
from stoker.web import messages
from stoker.web.changes import describe_change
from stoker.web.visitors import let_in

if TYPE_CHECKING:
    from stoker.engine.context import QueueContext
    from stoker.web.handshake import Session
    from stoker.web.sessions import Sessions
    from stoker.web.subscriptions import Subscriptions

# Close codes of the WebSocket, from the private range.
WRONG_TOKEN = 4401
TOO_MANY = 4429
NOT_UNDERSTOOD = 4400
_HELLO_TIMEOUT_S = 10.0
_MAX_WATCHES = 64
_LOG_HEAD = struct.Struct("<I")

_decode_json = msgspec.json.Decoder(messages.TabMessage).decode
_encode = msgspec.json.Encoder().encode


class TabConnections:
    """All connected tabs."""

    def __init__(
        self, context: QueueContext, subscriptions: Subscriptions, sessions: Sessions, max_tabs: int
    ) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._max_tabs = max_tabs
        self.tabs: set[Tab] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate a tab and serve it until it disconnects."""
        if (await receive())["type"] != "websocket.connect":
            return
        await send({"type": "websocket.accept"})
        try:
            session = await asyncio.wait_for(self._shake_hands(receive, send), _HELLO_TIMEOUT_S)
        except asyncio.TimeoutError:
            session = None
        if session is None or len(self.tabs) >= self._max_tabs:
            code = WRONG_TOKEN if session is None else TOO_MANY
            await send({"type": "websocket.close", "code": code})
            return
        let_in(scope)
        tab = Tab(self._context, self._subscriptions, send, session)
        self.tabs.add(tab)
        try:
            await tab.serve(receive)
        finally:
            self.tabs.discard(tab)
            self._sessions.close(session)

    async def _shake_hands(self, receive: Receive, send: Send) -> Session | None:
        """Prove the daemon to the tab, then the tab to the daemon; None if the tab's proof is wrong."""
        hello = _decode(_text_of(await receive()))
        if not isinstance(hello, messages.Hello):
            return None
        challenge = self._sessions.challenge(hello.nonce)
        await send(_text_message(challenge))
        prove = _decode(_text_of(await receive()))
        if not isinstance(prove, messages.Prove):
            return None
        session = self._sessions.open(hello.nonce, challenge.nonce, prove)
        if session is not None:
            about = (__version__, socket.gethostname(), self._context.home)
            await send(_text_message(self._sessions.welcome(session, prove.by, *about)))
        return session


class Tab:
    """A browser tab. Only the newest version of each watched answer waits to be sent.

    So a tab that reads slowly, or not at all, needs little memory and delays no other tab. It misses
    intermediate versions.
    """

    def __init__(
        self, context: QueueContext, subscriptions: Subscriptions, send: Send, session: Session
    ) -> None:
        self._context = context
        self._subscriptions = subscriptions
        self._send = send
        self._session = session
        self._waiting: dict[int, str | tuple[bytes, bool]] = {}
        self._sent: dict[int, bytes] = {}  # the answers that the tab has, of watches with `changes`
        self._awake = asyncio.Event()
        self._logs: dict[int, asyncio.Task[None]] = {}
        self._watched: set[int] = set()

    async def serve(self, receive: Receive) -> None:
        """Handle the tab's messages until it disconnects."""
        sending = asyncio.ensure_future(self._send_answers())
        reading = asyncio.ensure_future(self._read_messages(receive))
        try:
            await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._subscriptions.forget(self)
            tasks = (sending, reading, *self._logs.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_messages(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            request = _decode(self._session.read_message(_text_of(message)))
            match request:
                case messages.Watch():
                    await self._watch(request)
                case messages.Follow():
                    self._follow(request)
                case messages.Drop():
                    self._drop(request.id)
                case _:
                    await self._close(NOT_UNDERSTOOD)
                    return

    async def _watch(self, request: messages.Watch) -> None:
        self._drop(request.id)
        if not self._subscriptions.can_watch(request.path) or not request.query.isascii():
            self._refuse(request.id, NotFoundError(f"nothing can be watched at {request.path!r}"))
        elif self._is_full():
            self._refuse(
                request.id, UsageError(f"a tab can watch at most {_MAX_WATCHES} answers and logs")
            )
        else:
            self._watched.add(request.id)
            if request.changes:
                self._sent[request.id] = b""
            await self._subscriptions.watch(
                self,
                request.id,
                request.path,
                request.query,
                lambda body, is_refused: self._put(request.id, (body, is_refused)),
            )

    def _follow(self, request: messages.Follow) -> None:
        self._drop(request.id)
        if self._is_full():
            self._refuse(
                request.id, UsageError(f"a tab can watch at most {_MAX_WATCHES} answers and logs")
            )
        else:
            self._logs[request.id] = asyncio.ensure_future(
                self._send_log(request.id, request.query)
            )

    def _is_full(self) -> bool:
        return len(self._watched) + len(self._logs) >= _MAX_WATCHES

    def _drop(self, number: int) -> None:
        self._subscriptions.forget(self, number)
        self._watched.discard(number)
        self._waiting.pop(number, None)
        self._sent.pop(number, None)
        log = self._logs.pop(number, None)
        if log is not None:
            log.cancel()

    def _refuse(self, number: int, error: Exception) -> None:
        self._put(number, messages.problem_frame(number, answer_error(error).body))

    def _put(self, number: int, answer: str | tuple[bytes, bool]) -> None:
        self._waiting[number] = answer
        self._awake.set()

    def _frame(self, number: int, answer: str | tuple[bytes, bool]) -> str:
        """Return the text to send: the whole answer, or how it differs from the one that the tab has."""
        if isinstance(answer, str):
            return answer
        body, is_refused = answer
        if is_refused:
            return messages.problem_frame(number, body)
        before = self._sent.get(number)
        if before is None:
            return messages.data_frame(number, body)
        self._sent[number] = body
        change = describe_change(before, body) if before else None
        if change is None:
            return messages.data_frame(number, body)
        return messages.change_frame(number, change)

    async def _send_answers(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._waiting:
                number = next(iter(self._waiting))
                began = time.monotonic()
                text = self._frame(number, self._waiting.pop(number))
                await self._send({"type": "websocket.send", "text": text})
                self._subscriptions.charge(time.monotonic() - began)

    async def _send_log(self, number: int, query: str) -> None:
        """Send the bytes of a log, each chunk after the number of its request, then End."""
        try:
            wanted = read_query(query.encode("utf-8"), LogQuery)
            log = await open_log(self._context, wanted, follow=True)
        except Exception as error:
            self._refuse(number, error)
            return
        head = _LOG_HEAD.pack(number)
        await self._send_message(messages.Begin(number, log.job, log.attempt, log.offset))
        async with contextlib.aclosing(log.chunks) as chunks:
            async for chunk in chunks:
                await self._send({"type": "websocket.send", "bytes": head + chunk})
        await self._send_message(messages.End(number))

    async def _send_message(self, message: msgspec.Struct) -> None:
        await self._send(_text_message(message))

    async def _close(self, code: int) -> None:
        await self._send({"type": "websocket.close", "code": code})


def _text_of(message: Any) -> str:
    """Return the text of a WebSocket message; empty if it has none."""
    return message.get("text") or "" if message["type"] == "websocket.receive" else ""


def _text_message(message: msgspec.Struct) -> dict[str, Any]:
    return {"type": "websocket.send", "text": _encode(message).decode("utf-8")}


def _decode(text: str | None) -> messages.TabMessage | None:
    """Return the message of a tab; None if it is not valid."""
    try:
        return None if text is None else _decode_json(text)
    except (msgspec.DecodeError, UnicodeError):
        return None
