"""Between a daemon and an agent: trees go ahead of the attempts that need them, results before their ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stoker.bridge.calls import AgentLike, AgentLostError, patiently
from stoker.errors import StokerError
from stoker.executors.voyage import Voyage
from stoker.shipping.cargo import pack
from stoker.shipping.journey import Brought, bring_back, ship

_CALL_S = 60.0
_TO_END = ("kill", "revoke")
_OVER = ("ended", "lost")


class Passage(msgspec.Struct, frozen=True):
    """A voyage under way: an attempt that was taken back may set out again, as another one."""

    name: str
    voyage: Voyage


class Ferry:
    """Passes on what is said in one conversation. Whole lines go in either direction.

    An attempt with a voyage is started once its tree is there. Notes are kept of those that were, for
    whoever comes after us.
    """

    def __init__(
        self,
        agent: AgentLike,
        send: Callable[[bytes], Awaitable[None]],
        deliver: Callable[[bytes], None],
        tell: Callable[[str], None],
        notes: str,
    ) -> None:
        self._node = _Depot(agent, asyncio.get_running_loop())
        self._send = send
        self._deliver = deliver
        self._tell = tell
        self._notes = notes
        self._inbox = b""
        self._voyages: dict[str, Voyage] = {}
        self._going: dict[str, asyncio.Task[None]] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}

    async def pass_on(self, data: bytes) -> None:
        """Take what the daemon says to the node."""
        whole, end, self._inbox = (self._inbox + data).rpartition(b"\n")
        if not (self._voyages or self._going) and b'"voyage"' not in whole:
            await self._send(whole + end)
            return
        messages = [message for line in whole.splitlines() for message in json.loads(line)]
        passed = [message for message in messages if not self._keep(message)]
        if passed:
            await self._send(_line(passed))

    def bring(self, reports: bytes) -> None:
        """Take what the node tells to the daemon; ends of voyages wait for their results."""
        if b'"ended"' not in reports and b'"lost"' not in reports:
            self._deliver(reports)
            return
        passed = bytearray()
        for line in reports.splitlines(keepends=True):
            word, *rest = json.loads(line)
            passage = self._recall(rest[0]) if word in _OVER else None
            if passage is None:
                passed += line
            else:
                key = rest[0]
                self._returning[key] = asyncio.ensure_future(self._return(key, passage, line))
        self._deliver(bytes(passed))

    def close(self) -> None:
        """Leave everything as it is: whoever comes next goes on."""
        for task in (*self._going.values(), *self._returning.values()):
            task.cancel()

    def _keep(self, message: list[Any]) -> bool:
        """Whether a message is for us, or has to wait for a tree."""
        match message:
            case ["voyage", key, facts]:
                self._voyages[key] = msgspec.convert(facts, Voyage)
                return True
            case ["start", key, *_rest] if key in self._voyages:
                passage = Passage(f"{key}-{uuid.uuid4().hex[:8]}", self._voyages.pop(key))
                self._going[key] = asyncio.ensure_future(self._go(key, passage, message))
                return True
            case [verb, key, *_rest] if verb in _TO_END and key in self._going:
                self._going.pop(key).cancel()
                self._deliver(_report("revoked", key))
                return True
            case ["ack", keys]:
                for key in keys:
                    self._forget(key)
        return False

    async def _go(self, key: str, passage: Passage, start: list[Any]) -> None:
        voyage = passage.voyage
        try:
            folder = await asyncio.to_thread(self._ship, passage)
        except StokerError as error:
            self._deliver(_report("refused", key, 0, str(error)))
        except (ConnectionError, AgentLostError):
            return  # the conversation is over, and what has not begun will be told to be unknown
        else:
            run = None if voyage.run is None else os.path.join(folder, voyage.run[0])
            self._note(key, passage)
            berth = ["berth", key, os.path.join(folder, voyage.inside), run]
            # From here on the start cannot be recalled: an order to end it has to follow it.
            self._going.pop(key, None)
            await self._send(_line([berth, start]))
        finally:
            self._going.pop(key, None)

    def _ship(self, passage: Passage) -> str:
        voyage = passage.voyage
        cargo = pack(voyage.snapshot, inside=voyage.inside, run=voyage.run)
        return ship(cargo, self._node, passage.name)

    async def _return(self, key: str, passage: Passage, end: bytes) -> None:
        job = key.partition(".")[0]
        try:
            brought = await asyncio.to_thread(self._bring, passage)
            if brought is not None and brought.notice is not None:
                self._tell(f"job {job}: {brought.notice}")
        except StokerError as error:
            self._tell(f"job {job}: its results could not be brought: {error}")
        except (ConnectionError, AgentLostError):
            return  # its end will be told again
        finally:
            self._returning.pop(key, None)
        self._deliver(end)

    def _bring(self, passage: Passage) -> Brought | None:
        voyage = passage.voyage
        if voyage.results is None:
            self._node.done(passage.name)
            return None
        results = os.fsencode(voyage.results)
        return bring_back(self._node, passage.name, results, voyage.target, voyage.limit_bytes)

    def _path(self, key: str) -> str:
        return os.path.join(self._notes, f"{key}.json")

    def _note(self, key: str, passage: Passage) -> None:
        os.makedirs(self._notes, mode=0o700, exist_ok=True)
        with open(f"{self._path(key)}.new", "wb") as file:
            file.write(msgspec.json.encode(passage))
        os.replace(f"{self._path(key)}.new", self._path(key))

    def _recall(self, key: str) -> Passage | None:
        try:
            with open(self._path(key), "rb") as file:
                return msgspec.json.decode(file.read(), type=Passage)
        except FileNotFoundError:
            return None

    def _forget(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(key))


class _Depot:
    """A node's depot, as threads of this process call it."""

    def __init__(self, agent: AgentLike, loop: asyncio.AbstractEventLoop) -> None:
        self._agent = agent
        self._loop = loop

    def _ask(self, verb: str, *words: Any) -> Any:
        call = patiently(lambda: self._agent.depot(verb, *words), _CALL_S)
        try:
            is_done, answer = asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except AgentLostError as error:
            raise ConnectionError(str(error)) from error
        if not is_done:
            raise StokerError(answer)
        return answer

    def missing(self, manifest: bytes) -> list[str]:
        """The contents of a tree that are not there."""
        return list(self._ask("missing", manifest))

    def put(self, pieces: list[tuple[str, int, int, bytes]]) -> list[int]:
        """Send pieces of contents."""
        return list(self._ask("put", pieces))

    def lay_out(self, manifest: bytes, name: str) -> dict[str, Any]:
        """Make a copy."""
        return dict(self._ask("lay_out", manifest, name))

    def collect(self, name: str, results: bytes, limit_bytes: int) -> dict[str, Any]:
        """What a job has made."""
        return dict(self._ask("collect", name, results, limit_bytes))

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """A piece of that."""
        found: bytes | None = self._ask("fetch", name, digest, offset)
        return found

    def done(self, name: str) -> None:
        """Delete the copy."""
        self._ask("done", name)


def _line(messages: list[list[Any]]) -> bytes:
    return f"{json.dumps(messages)}\n".encode()


def _report(*words: object) -> bytes:
    return f"{json.dumps(words)}\n".encode()
