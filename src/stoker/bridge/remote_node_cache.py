"""NodeCache of a node, as threads of the bridge call it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, TypeVar

from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.agent_messages import (
    CacheFailure,
    CacheRequest,
    Collect,
    CollectCheckpoints,
    DeleteCheckpoints,
    DeleteCopy,
    Fetch,
    FetchCheckpoints,
    FindMissing,
    LayOut,
    LayOutCheckpoints,
    PutPieces,
)
from stoker.staging.manifest import StagingError
from stoker.staging.node_cache import CollectedResults, Piece, WorkingCopy

_T = TypeVar("_T")
_TIMEOUT_S = 60.0


class RemoteNodeCache:
    """Implements NodeEndpoint. A call that gets no reply raises ConnectionError.

    Calls whose work grows with the tree have no time limit: a repeated call would do the same work twice at
    the same time.
    """

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._loop = asyncio.get_running_loop()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Raise AgentLostError in all threads that wait for a reply, and in later calls."""
        self._is_closed = True
        for call in [*self._calls]:
            call.cancel()

    def missing(self, manifest: bytes) -> list[str]:
        """Return the contents of a tree that are not there."""
        return self._call(FindMissing(manifest), _TIMEOUT_S)

    def put(self, pieces: list[Piece]) -> list[int]:
        """Send pieces of contents."""
        return self._call(PutPieces(pieces), _TIMEOUT_S)

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        """Make a copy."""
        return self._call(LayOut(manifest, name), None)

    def collect(self, name: str, results: bytes, limit_bytes: int) -> CollectedResults:
        """Find what a job made."""
        return self._call(Collect(name, results, limit_bytes), None)

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """Return a piece of a result."""
        return self._call(Fetch(name, digest, offset), _TIMEOUT_S)

    def done(self, name: str) -> None:
        """Delete the copy."""
        self._call(DeleteCopy(name), None)

    def _call(self, request: CacheRequest[_T | CacheFailure], timeout_s: float | None) -> _T:
        call = asyncio.run_coroutine_threadsafe(self._agent.call(request, timeout_s), self._loop)
        self._calls.add(call)
        if self._is_closed:
            call.cancel()
        try:
            reply = call.result()
        except concurrent.futures.CancelledError:
            raise AgentLostError("the stream has ended") from None
        except AgentLostError as error:
            raise ConnectionError(str(error)) from error
        finally:
            self._calls.discard(call)
        if isinstance(reply, CacheFailure):
            raise StagingError(reply.reason, reply.errno)
        return reply


class RemoteCheckpoints(RemoteNodeCache):
    """NodeCheckpoints of a node. The name of a folder is the number of its job."""

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        """Replace a job's folder."""
        return self._call(LayOutCheckpoints(manifest, int(name)), None)

    def collect(self, name: str, _results: bytes, limit_bytes: int) -> CollectedResults:
        """Read a job's folder."""
        return self._call(CollectCheckpoints(int(name), limit_bytes), None)

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        """Return a piece of a checkpoint."""
        return self._call(FetchCheckpoints(int(name), digest, offset), _TIMEOUT_S)

    def done(self, name: str) -> None:
        """Delete a job's folder."""
        self._call(DeleteCheckpoints(int(name)), None)
