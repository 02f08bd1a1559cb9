"""A staging proxy between a test, which plays the daemon, and the files of a node on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stoker.bridge.agent import CACHE_METHODS
from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.agent_messages import (
    CacheFailure,
    CacheRequest,
    CheckpointRequest,
    decode_request,
    encode,
)
from stoker.bridge.checkpoint_proxy import HeadFiles
from stoker.bridge.file_writers import FileWriters
from stoker.bridge.staging_proxy import StagingProxy
from stoker.staging.node_cache import NodeCache
from stoker.staging.node_checkpoints import NodeCheckpoints


def head_files(folder: Path) -> HeadFiles:
    return HeadFiles(
        transfers=str(folder / "notes"), checkpoints=str(folder / "here"), limit_bytes=1000
    )


class ProxyHarness:
    """A staging proxy between a test, which plays the daemon, and the cache of a node on this machine."""

    def __init__(self, folder: Path) -> None:
        self.snapshot, self.target = folder / "code", folder / "results"
        self.notes = folder / "notes"
        self.files = head_files(folder)
        self.snapshot.mkdir()
        (self.snapshot / "train.py").write_text("print()")
        self.node = NodeCache(str(folder / "node_cache"))
        self.copies = folder / "node_cache" / "copies"
        self.checkpoints = NodeCheckpoints(str(folder / "there"), self.node.blobs)
        self.sent: list[list[Any]] = []
        self.delivered: list[list[Any]] = []
        self.notices: list[str] = []
        self.is_slow = False
        self.broken: set[object] = set()
        self.failures: dict[object, CacheFailure] = {}
        self.asked: set[object] = set()
        self.moved = asyncio.Event()
        self.writers = FileWriters()
        self.staging_proxy = self.make_staging_proxy()

    def make_staging_proxy(self) -> StagingProxy:
        """Open one more stream."""
        agent = AgentClient(lambda data: self.serve(data))
        return StagingProxy(
            agent, self.send, self.deliver, self.notices.append, self.files, self.writers
        )

    async def serve(self, data: bytes) -> bytes:
        request = decode_request(data)
        assert isinstance(request, CacheRequest)
        self.asked.add(type(request))
        if type(request) in self.broken:
            raise ConnectionError("gone")
        if (failure := self.failures.get(type(request))) is not None:
            return encode(failure)
        is_checkpoint = isinstance(request, CheckpointRequest)
        target = self.checkpoints if is_checkpoint else self.node
        method = partial(CACHE_METHODS[type(request)], target)
        answer = await asyncio.to_thread(method, *msgspec.structs.astuple(request))
        self.moved.set()
        return encode(answer)

    def left(self) -> list[str]:
        """Copies on the node, and records of them here."""
        return sorted([*os.listdir(self.copies), *os.listdir(self.notes)])

    async def send(self, lines: list[bytes]) -> None:
        for line in lines:
            self.sent.extend(json.loads(line))
        self.moved.set()
        if "send" in self.broken:
            raise AgentLostError("no answer")
        if self.is_slow:
            await asyncio.get_running_loop().create_future()

    def deliver(self, data: bytes) -> None:
        self.delivered.extend(json.loads(line) for line in data.splitlines())
        self.moved.set()

    async def order(self, *messages: list[Any]) -> None:
        await self.staging_proxy.pass_on(f"{json.dumps(messages)}\n".encode())

    def report(self, *words: Any) -> None:
        """Report something as the node."""
        self.staging_proxy.bring([json.dumps(words).encode()])

    async def launch(self, key: str = "1.1", **facts: Any) -> None:
        transfer = {"argv": ["true"], "snapshot": str(self.snapshot), **facts}
        await self.order(["tree", key, transfer], ["start", key, 0, 0, ["true"], None])

    async def until(self, is_so: Callable[[], object]) -> None:
        deadline = asyncio.get_running_loop().time() + 20
        while not is_so():
            self.moved.clear()
            with contextlib.suppress(asyncio.TimeoutError):  # files change without an event
                await asyncio.wait_for(self.moved.wait(), 0.05)
            assert asyncio.get_running_loop().time() < deadline


def run(folder: Path, scenario: Callable[[ProxyHarness], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await scenario(ProxyHarness(folder))

    asyncio.run(begin())
