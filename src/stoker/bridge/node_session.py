"""A node as the bridge knows it: whether it answers, what it was granted, and who speaks with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from stoker.bridge.agent_calls import LEFT, AgentLike, AgentLostError, NodeLeftError, patiently
from stoker.bridge.clock import boot_s
from stoker.bridge.log_forwarder import Piece, write_piece
from stoker.bridge.staging_proxy import StagingProxy
from stoker.executors.node_reports import (
    Ahead,
    Away,
    Introduction,
    Joined,
    Leaving,
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
_PAUSE_S = 0.5
_SLOWER_S = 0.05
# Clocks of two machines do not run at the same pace, and a killed tree takes a moment to be gone.
_MARGIN_S = 2.0
_sights = msgspec.json.Decoder(Sight | None)


class NodeSession:
    """Keeps in touch with a node's agent, which may be another one after a while."""

    def __init__(
        self,
        node: str,
        name: str,
        tell: Callable[[News], None],
        lease_s: float,
        notes: str,
        leased_until_s: float = 0.0,
    ) -> None:
        self.node = node
        self.name = name
        self.lease_s = lease_s
        self.wanted = False
        self._tell = tell
        self._notes = notes
        self._introduction: Introduction | None = None
        self._ahead = Ahead()
        self._quickest_s = float("inf")
        self._agent: AgentLike | None = None
        self._away: str | None = "it has not answered yet"
        # Whoever was here before may have granted a whole lease just now.
        self._granted_until_s = max(boot_s() + lease_s, leased_until_s)
        self._is_parted = False
        self._is_leaving = False
        self._is_given_up = False  # by a daemon: whatever was started there until it parted
        self._conversation: asyncio.Task[bool] | None = None
        self._passing: asyncio.Future[None] | None = None
        self._hand = ThreadPoolExecutor(1)

    def retell(self) -> None:
        """Tell a daemon that knows nothing yet how things stand."""
        # If it was not told that the node has parted, it may still wait for what ran there.
        self._is_given_up = self._is_parted
        if self._is_leaving:
            self._tell(Leaving(self.node))
        elif self._introduction is not None and self._away is None:
            self._tell(Joined(self._introduction, self._ahead))
        elif self._is_parted:
            self._tell(Parted(self.node, self._parting()))
        else:
            self._tell(Away(self.node, self._away or ""))

    async def mind(self, agent: AgentLike, introduction: Introduction) -> None:
        """Beat with an agent for as long as it answers; raises an error when it no longer does."""
        self._agent = agent
        self._quickest_s = float("inf")
        self.name = introduction.name
        echo: float | None = None
        while True:
            if echo is not None:
                # A lease that was longer before goes on for as long as it was granted.
                until_s = boot_s() + self.lease_s
                self._granted_until_s = max(self._granted_until_s, until_s)
            asked_s, asked_at = boot_s(), time.time()
            call = asyncio.ensure_future(
                patiently(partial(agent.beat, echo, self.lease_s, self.wanted), _CALL_S)
            )
            done, _pending = await asyncio.wait((call,), timeout=_PATIENCE_S)
            if not done:
                self.lose("it does not answer")
            was_echoed = echo is not None
            echo, told_at, seen, leave = await call
            self._compare(asked_s, asked_at, echo, told_at)
            if leave:
                self._see_off(leave)
            elif was_echoed and (self._away is not None or self._is_leaving):
                self._away, self._is_parted, self._is_leaving = None, False, False
                self._introduction = introduction
                self._tell(Joined(introduction, self._ahead))
            sight = _sights.decode(seen)
            if sight is not None or self.wanted:
                self._tell(Sighted(self.node, sight))
            await asyncio.sleep(_BEAT_S if was_echoed else 0.0)

    def _compare(self, asked_s: float, asked_at: float, told_s: float, told_at: float) -> None:
        """Compare clocks by an answer, unless an earlier one came much sooner after its question."""
        took_s = boot_s() - asked_s
        if took_s > self._quickest_s + _SLOWER_S:
            return
        self._quickest_s = min(self._quickest_s, took_s)
        behind_s = (asked_at + time.time()) / 2 - told_at
        # Within what the answer took, or nearly so, they may be the same.
        of_day_s = round(behind_s) if abs(behind_s) > took_s / 2 + 1.0 else 0
        self._ahead = Ahead((asked_s + boot_s()) / 2 - told_s, of_day_s)

    def _see_off(self, leave: str) -> None:
        """Tell that the node leaves, once; raises NodeLeftError when it has."""
        if leave == LEFT:
            self._tell(Left(self.node))
            raise NodeLeftError
        if not self._is_leaving:
            self._is_leaving = True
            self._tell(Leaving(self.node))

    def lose(self, reason: str) -> None:
        """The node does not answer."""
        if self._away is None:
            self._away = reason
            self._tell(Away(self.node, reason))

    def check_lease(self) -> None:
        """Tell once the node's jobs cannot be running any more."""
        over = boot_s() > self._granted_until_s + _MARGIN_S
        if self._away is not None and over and not self._is_parted:
            self._is_parted = self._is_given_up = True
            self._tell(Parted(self.node, self._parting()))

    def _parting(self) -> str:
        return f"{self.name} was cut off for longer than its lease of {self.lease_s:g} s"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a connection of the daemon's one with the node's supervisor, until either end is gone."""
        if self._passing is not None and not self._passing.done():
            # Who spoke before has hung up: what was said till then still counts.
            await asyncio.wait((self._passing,), timeout=_PATIENCE_S)
        if self._conversation is not None:
            self._conversation.cancel()
        task = self._conversation = asyncio.ensure_future(self._converse(reader, writer))
        with contextlib.suppress(asyncio.CancelledError):
            if not await task:
                await asyncio.sleep(_PAUSE_S)  # or it would be tried again at once, and again
        if self._conversation is task:
            self._conversation = None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass on what is said; whether anything could be."""
        agent, conversation = self._agent, uuid.uuid4().hex
        if agent is None:
            return False
        directions: list[asyncio.Future[None]] = []
        staging_proxy: StagingProxy | None = None

        async def send(data: bytes) -> None:
            if not await patiently(lambda: agent.write(conversation, data), _CALL_S):
                raise AgentLostError("the conversation is over")

        try:
            await patiently(lambda: agent.open(conversation), _CALL_S)
            staging_proxy = StagingProxy(agent, send, writer.write, self._say, self._notes)
            if self._is_given_up:
                await staging_proxy.give_up()  # before anything is heard of it
                self._is_given_up = False
            self._passing = asyncio.ensure_future(_pass_on(staging_proxy, reader))
            directions += (
                self._passing,
                asyncio.ensure_future(self._bring_back(agent, conversation, staging_proxy, writer)),
                staging_proxy.broken,
            )
            done, _pending = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            if any(isinstance(each.exception(), OSError) for each in done):
                await asyncio.wait((self._passing,), timeout=_PATIENCE_S)  # it has hung up
        except AgentLostError:
            return False  # the beat will tell
        except OSError as error:
            self._say(f"{self.name} cannot be spoken with: {error}")
            return False
        else:
            return True
        finally:
            if staging_proxy is not None:
                staging_proxy.close()
            for direction in directions:
                direction.cancel()
            for direction in directions:
                with contextlib.suppress(asyncio.CancelledError, AgentLostError, OSError):
                    await direction
            with contextlib.suppress(AgentLostError):
                await patiently(lambda: agent.close(conversation), _PATIENCE_S)

    def _say(self, text: str) -> None:
        self._tell(Told(text))

    async def _bring_back(
        self,
        agent: AgentLike,
        conversation: str,
        staging_proxy: StagingProxy,
        writer: asyncio.StreamWriter,
    ) -> None:
        while True:
            reply = await patiently(lambda: agent.read(conversation), _CALL_S)
            if reply is None:
                return
            pieces, reports = reply
            if pieces:
                await self._keep(pieces)
            staging_proxy.bring(reports)
            await writer.drain()

    async def _keep(self, pieces: list[Any]) -> None:
        """Write pieces of logs, aside: one file system that hangs must not hold up the word of all nodes."""
        loop = asyncio.get_running_loop()
        for problem in await loop.run_in_executor(self._hand, _write_all, pieces):
            self._say(f"a log from {self.name} cannot be kept: {problem}")

    def close(self) -> None:
        """Speak no more."""
        if self._conversation is not None:
            self._conversation.cancel()


def _write_all(pieces: list[Any]) -> list[str]:
    """Write what can be written; says what cannot."""
    problems = []
    for piece in (Piece(*each) for each in pieces):
        try:
            write_piece(piece)
        except OSError as error:
            problems.append(f"{error.strerror}: {piece.path}")
    return problems


async def _pass_on(staging_proxy: StagingProxy, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(1 << 20):
        await staging_proxy.pass_on(data)
