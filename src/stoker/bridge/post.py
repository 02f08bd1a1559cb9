"""A node as the bridge knows it: whether it answers, what it was granted, and who speaks with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from stoker.bridge.trail import Piece, write_piece
from stoker.executors.node import (
    Away,
    Introduction,
    Joined,
    Left,
    News,
    Parted,
    Sight,
    Sighted,
    Told,
)

_BEAT_S = 1.0
_PATIENCE_S = 3.0
_CALL_S = 20.0
# Clocks of two machines do not run at the same pace, and a killed tree takes a moment to be gone.
_MARGIN_S = 2.0
_sights = msgspec.json.Decoder(Sight | None)


class AgentLike(Protocol):
    """An agent on a node, whose answers take their time, or never come."""

    def beat(
        self, echo: float | None, lease_s: float, wanted: bool
    ) -> Awaitable[tuple[float, bytes]]:
        """Renew the lease; answered with a stamp and what is seen."""

    def open(self, conversation: str) -> Awaitable[None]:
        """Begin a conversation with the shepherd."""

    def write(self, conversation: str, data: bytes) -> Awaitable[bool]:
        """Pass on what the daemon says."""

    def read(self, conversation: str) -> Awaitable[Any]:
        """Ask for what has come."""

    def close(self, conversation: str) -> Awaitable[None]:
        """End a conversation."""


class AgentLostError(Exception):
    """An agent cannot be reached, or is no more."""


class Post:
    """Keeps in touch with a node's agent, which may be another one after a while."""

    def __init__(self, node: str, name: str, tell: Callable[[News], None], lease_s: float) -> None:
        self.node = node
        self.name = name
        self.lease_s = lease_s
        self.wanted = False
        self._tell = tell
        self._introduction: Introduction | None = None
        self._agent: AgentLike | None = None
        self._away: str | None = "it has not answered yet"
        # Whoever was here before may have granted a whole lease just now.
        self._granted_until_s = _boot_s() + lease_s
        self._is_parted = False
        self._conversation: asyncio.Task[None] | None = None

    def retell(self) -> None:
        """Tell a daemon that knows nothing yet how things stand."""
        if self._introduction is not None and self._away is None:
            self._tell(Joined(self._introduction))
        elif self._is_parted:
            self._tell(Parted(self.node, self._parting()))
        else:
            self._tell(Away(self.node, self._away or ""))

    async def mind(self, agent: AgentLike, introduction: Introduction) -> None:
        """Beat with an agent for as long as it answers; raises an error when it no longer does."""
        self._agent = agent
        self.name = introduction.name
        echo: float | None = None
        while True:
            if echo is not None:
                self._granted_until_s = _boot_s() + self.lease_s
            call = asyncio.ensure_future(
                patiently(agent.beat(echo, self.lease_s, self.wanted), _CALL_S)
            )
            done, _pending = await asyncio.wait((call,), timeout=_PATIENCE_S)
            if not done:
                self.lose("it does not answer")
            was_echoed = echo is not None
            echo, seen = await call
            if was_echoed and self._away is not None:
                self._away, self._is_parted = None, False
                self._introduction = introduction
                self._tell(Joined(introduction))
            sight = _sights.decode(seen)
            if sight is not None:
                self._tell(Sighted(self.node, sight))
            await asyncio.sleep(_BEAT_S if was_echoed else 0.0)

    def lose(self, reason: str) -> None:
        """The node does not answer."""
        if self._away is None:
            self._away = reason
            self._tell(Away(self.node, reason))

    def check_lease(self) -> None:
        """Tell once the node's jobs cannot be running any more."""
        over = _boot_s() > self._granted_until_s + _MARGIN_S
        if self._away is not None and over and not self._is_parted:
            self._is_parted = True
            self._tell(Parted(self.node, self._parting()))

    def leave(self) -> None:
        """The node says good-bye."""
        self._tell(Left(self.node))

    def _parting(self) -> str:
        return f"{self.name} was cut off for longer than its lease of {self.lease_s:g} s"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a connection of the daemon's one with the node's shepherd, until either end is gone."""
        if self._conversation is not None:
            self._conversation.cancel()
        task = self._conversation = asyncio.ensure_future(self._converse(reader, writer))
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if self._conversation is task:
            self._conversation = None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        agent, conversation = self._agent, uuid.uuid4().hex
        if agent is None:
            return
        directions: list[asyncio.Future[None]] = []
        try:
            await patiently(agent.open(conversation), _CALL_S)
            directions += (
                asyncio.ensure_future(_pass_on(agent, conversation, reader)),
                asyncio.ensure_future(self._bring_back(agent, conversation, writer)),
            )
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except AgentLostError:
            return  # the beat will tell
        finally:
            for direction in directions:
                direction.cancel()
            for direction in directions:
                with contextlib.suppress(asyncio.CancelledError, AgentLostError, OSError):
                    await direction
            with contextlib.suppress(AgentLostError):
                await patiently(agent.close(conversation), _PATIENCE_S)

    async def _bring_back(
        self, agent: AgentLike, conversation: str, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            reply = await patiently(agent.read(conversation), _CALL_S)
            if reply is None:
                return
            pieces, reports = reply
            for piece in pieces:
                self._keep(Piece(*piece))
            writer.write(reports)
            await writer.drain()

    def _keep(self, piece: Piece) -> None:
        try:
            write_piece(piece)
        except OSError as error:
            self._tell(
                Told(f"a log from {self.name} cannot be kept: {error.strerror}: {piece.path}")
            )

    def close(self) -> None:
        """Speak no more."""
        if self._conversation is not None:
            self._conversation.cancel()


async def _pass_on(agent: AgentLike, conversation: str, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(1 << 20):
        if not await patiently(agent.write(conversation, data), _CALL_S):
            return


async def patiently(answer: Awaitable[Any], patience_s: float) -> Any:
    """An agent's answer; whatever keeps it from coming is one error."""
    try:
        return await asyncio.wait_for(_as_coroutine(answer), patience_s)
    except asyncio.TimeoutError:
        raise AgentLostError("no answer") from None
    except asyncio.CancelledError:
        raise
    except Exception as error:  # Ray has many, and not all of them are of its own class
        raise AgentLostError(str(error).splitlines()[0] if str(error) else repr(error)) from error


async def _as_coroutine(answer: Awaitable[Any]) -> Any:
    return await answer


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
