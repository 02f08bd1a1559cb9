"""Checkpoints of a stream's attempts: to the node before a start, to the head during and after the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import msgspec

from stoker.bridge.agent_client import AgentClient
from stoker.bridge.file_writers import FileWriters
from stoker.bridge.remote_node_cache import RemoteCheckpoints
from stoker.checkpoints import checkpoint_path
from stoker.core.job import Attempt
from stoker.errors import StokerError
from stoker.staging.bundle import pack
from stoker.staging.transfer import bring_checkpoints, ship


class HeadFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of the head: records of transfers, and all checkpoints with the most that travels of a job."""

    transfers: str
    checkpoints: str
    limit_bytes: int


class CheckpointProxy:
    """Moves the checkpoint folders of attempts. Only an attempt that the daemon wants replaces a folder."""

    def __init__(
        self,
        agent: AgentClient,
        notify: Callable[[str], None],
        files: HeadFiles,
        writers: FileWriters,
    ) -> None:
        self._agent = agent
        self._notify = notify
        self._files = files
        self._writers = writers
        self._wanted: set[str] = set()
        self._announced: set[str] = set()
        self._mirrors: dict[str, asyncio.Task[None]] = {}

    def want(self, key: str) -> None:
        """Let an attempt replace its job's folder on the head."""
        self._wanted.add(key)

    def is_wanted(self, key: str) -> bool:
        """Whether the daemon wants the checkpoints of an attempt."""
        return key in self._wanted

    def announce(self, key: str) -> None:
        """Note that checkpoints have to be sent before an attempt starts."""
        self._announced.add(key)

    def is_announced(self, key: str) -> bool:
        """Whether checkpoints have to be sent before an attempt starts."""
        return key in self._announced

    async def send(self, key: str) -> None:
        """Send the checkpoints of an attempt's job, if they were announced."""
        if key not in self._announced:
            return
        self._announced.discard(key)
        remote = RemoteCheckpoints(self._agent)
        try:
            problem = await asyncio.to_thread(self._ship, remote, key)
        finally:
            remote.close()
        if problem is not None:
            job = key.partition(".")[0]
            self._notify(f"job {job}: it starts without its checkpoints: {problem}")

    def mirror(self, key: str) -> None:
        """Bring the checkpoints of a running attempt. What goes wrong is tried again with the next ones."""
        if key in self._wanted and key not in self._mirrors:
            task = self._mirrors[key] = asyncio.ensure_future(self._mirror(key))
            task.add_done_callback(lambda _task: self._mirrors.pop(key, None))

    async def bring(self, key: str) -> str | None:
        """Bring the checkpoints of an attempt that is over. Returns the reason if its node keeps them."""
        mirror = self._mirrors.get(key)
        if mirror is not None:
            await asyncio.wait((mirror,))
        return await self._bring(key, is_over=True)

    def close(self) -> None:
        """Stop; the next stream brings what is missing."""
        for mirror in self._mirrors.values():
            mirror.cancel()

    async def _mirror(self, key: str) -> None:
        problem = await self._bring(key, is_over=False)
        if problem is not None:
            job = key.partition(".")[0]
            self._notify(f"job {job}: its checkpoints stay on its node while it runs: {problem}")

    async def _bring(self, key: str, *, is_over: bool) -> str | None:
        remote = RemoteCheckpoints(self._agent)
        job = str(Attempt.from_key(key).job)
        limit_bytes = self._files.limit_bytes
        try:
            problem = await self._writers.run(
                bring_checkpoints, remote, job, self._folder(key), limit_bytes
            )
            if problem is None and is_over:
                await asyncio.to_thread(remote.done, job)
        except (StokerError, OSError) as error:
            return str(error).partition("\n")[0]
        finally:
            remote.close()
        return problem

    def _ship(self, remote: RemoteCheckpoints, key: str) -> str | None:
        """Send a folder. Returns the reason if it does not travel."""
        bundle = pack(self._folder(key))
        size = bundle.manifest.size_bytes
        if size > self._files.limit_bytes:
            return f"{size >> 20} MiB are more than sync.limit"
        ship(bundle, remote, str(Attempt.from_key(key).job))
        return None

    def _folder(self, key: str) -> str:
        return os.path.join(self._files.checkpoints, checkpoint_path(Attempt.from_key(key).job))
