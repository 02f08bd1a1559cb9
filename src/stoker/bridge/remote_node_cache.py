"""A node's node cache, as threads of this process call it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

from stoker.bridge.agent_calls import AgentLike, AgentLostError, patiently
from stoker.errors import StokerError

_CALL_S = 60.0


class RemoteNodeCache:
    """Keeps the promises of Node cache; calls that get lost are ConnectionErrors.

    Those whose work grows with a tree are waited for until the conversation is over: asked for twice,
    it would be done twice at once.
    """

    def __init__(self, agent: AgentLike) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Ask no more; raises AgentLostError in threads that wait for an answer, or ask for one."""
        self._is_closed = True
        for call in [*self._calls]:
            call.cancel()

    def missing(self, manifest: bytes) -> list[str]:
        """The contents of a tree that are not there."""
        return list(self._ask(_CALL_S, "missing", manifest))

    def put(self, pieces: list[tuple[str, int, int, bytes]]) -> list[int]:
        """Send pieces of contents."""
        return list(self._ask(_CALL_S, "put", pieces))

    def lay_out(self, manifest: bytes, name: str) -> dict[str, Any]:
        """Make a copy."""
        return dict(self._ask(None, "lay_out", manifest, name))

    def collect(self, name: str, results: bytes, limit_bytes: int) -> dict[str, Any]:
        """What a job has made."""
        return dict(self._ask(None, "collect", name, results, limit_bytes))

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """A piece of that."""
        found: bytes | None = self._ask(_CALL_S, "fetch", name, digest, offset)
        return found

    def done(self, name: str) -> None:
        """Delete the copy."""
        self._ask(None, "done", name)

    def _ask(self, patience_s: float | None, verb: str, *words: Any) -> Any:
        answer = patiently(lambda: self._agent.node_cache(verb, *words), patience_s)
        call = asyncio.run_coroutine_threadsafe(answer, self._loop)
        self._calls.add(call)
        if self._is_closed:
            call.cancel()
        try:
            is_done, found = call.result()
        except concurrent.futures.CancelledError:
            raise AgentLostError("the conversation is over") from None
        except AgentLostError as error:
            raise ConnectionError(str(error)) from error
        finally:
            self._calls.discard(call)
        if not is_done:
            raise StokerError(found)
        return found
