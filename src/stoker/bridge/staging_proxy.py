"""Between a daemon and an agent: trees go ahead of the attempts that need them, results before their ends."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stoker.bridge.agent_calls import AgentLike, AgentLostError
from stoker.bridge.remote_node_cache import RemoteNodeCache
from stoker.bridge.transfer_log import TransferLog, TransferRecord
from stoker.errors import StokerError
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.staging.bundle import pack
from stoker.staging.transfer import FetchedResults, bring_back, ship

_TO_END = ("kill", "revoke")
_OVER = ("ended", "lost")
_IN_VAIN = ("refused", "revoked")
_OF_NOTES = tuple(f'"{word}"'.encode() for word in (*_OVER, *_IN_VAIN, "synced"))


class StagingProxy:
    """Passes on what is said in one conversation. Whole lines go in either direction.

    An attempt with a transfer is started once its tree is there. Notes are kept of their copies, for
    whoever comes after us; copies of attempts that never began are deleted. For as long as the
    conversation lasts, each start is answered and each end is told, whatever goes wrong with files;
    `broken` is done once it cannot last.
    """

    def __init__(
        self,
        agent: AgentLike,
        send: Callable[[bytes], Awaitable[None]],
        deliver: Callable[[bytes], None],
        tell: Callable[[str], None],
        notes: str,
    ) -> None:
        self._agent = agent
        self._send = send
        self._deliver = deliver
        self._tell = tell
        self._notes = TransferLog(notes)
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inbox = b""
        self._transfers: dict[str, AttemptTransfer] = {}
        self._going: dict[str, asyncio.Task[None]] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}
        self._deleting: set[asyncio.Task[None]] = set()
        self._over: set[str] = set()

    async def give_up(self) -> None:
        """Let nothing come of what was started on the node until now: it may be running elsewhere."""
        self._notes.void()
        await self._send(_line([["parted"]]))

    async def pass_on(self, data: bytes) -> None:
        """Take what the daemon says to the node."""
        whole, end, self._inbox = (self._inbox + data).rpartition(b"\n")
        is_ours = b'"transfer"' in whole or (self._notes.keys and b'"ack"' in whole)
        if not (self._transfers or self._going or is_ours):
            await self._send(whole + end)
            return
        messages = [message for line in whole.splitlines() for message in json.loads(line)]
        passed = [message for message in messages if not self._keep(message)]
        if passed:
            await self._send(_line(passed))

    def bring(self, reports: bytes) -> None:
        """Take what the node tells to the daemon; ends of transfers wait for their results."""
        if not self._notes.keys or not any(word in reports for word in _OF_NOTES):
            self._deliver(reports)
            return
        passed = bytearray()
        for line in reports.splitlines(keepends=True):
            word, *rest = json.loads(line)
            if word not in _OVER or not self._receive(rest[0], line):
                passed += line
            if word in _IN_VAIN:
                self._delete_copy(rest[0])
            elif word == "synced":
                for key in self._notes.keys - self._over - self._going.keys() - set(rest[0]):
                    self._delete_copy(key)  # it was on its way when we were cut off
        self._deliver(bytes(passed))

    def _receive(self, key: str, end: bytes) -> bool:
        """Whether there is something to do before an end is told."""
        transfer_record = self._notes.read(key)
        if transfer_record is not None:
            self._over.add(key)
            self._returning[key] = asyncio.ensure_future(self._return(key, transfer_record, end))
        return transfer_record is not None

    def close(self) -> None:
        """Leave everything as it is: whoever comes next goes on."""
        for task in (*self._going.values(), *self._returning.values(), *self._deleting):
            task.cancel()

    def _keep(self, message: list[Any]) -> bool:
        """Whether a message is for us, or has to wait for a tree."""
        match message:
            case ["transfer", key, facts]:
                self._transfers[key] = msgspec.convert(facts, AttemptTransfer)
                return True
            case ["start", key, *_rest] if key in self._transfers:
                transfer_record = TransferRecord(
                    f"{key}-{uuid.uuid4().hex[:8]}", self._transfers.pop(key)
                )
                self._going[key] = asyncio.ensure_future(self._go(key, transfer_record, message))
                return True
            case [verb, key, *_rest] if verb in _TO_END and key in self._going:
                self._going.pop(key).cancel()
                self._deliver(_line(["revoked", key]))
                self._delete_copy(key)
                return True
            case ["ack", keys]:
                for key in keys:
                    self._over.discard(key)
                    self._notes.forget(key)
        return False

    async def _go(self, key: str, transfer_record: TransferRecord, start: list[Any]) -> None:
        transfer, node_cache = transfer_record.transfer, RemoteNodeCache(self._agent)
        try:
            self._notes.write(key, transfer_record)
            folder = await asyncio.to_thread(_ship, node_cache, transfer_record)
        except Exception as error:  # nobody else would say what became of it
            del self._going[key]
            self._deliver(_line(["refused", key, 0, _brief(error)]))
            self._delete_copy(key)
            return
        finally:
            node_cache.close()
        # From here on the start cannot be recalled: an order to end it has to follow it.
        del self._going[key]
        run = None if transfer.run is None else os.path.join(folder, transfer.run[0])
        proxy_slot = ["proxy_slot", key, os.path.join(folder, transfer.inside), run]
        try:
            await self._send(_line([proxy_slot, start]))
        except AgentLostError:
            if not self.broken.done():
                self.broken.set_result(None)  # the next one begins with what the node knows

    async def _return(self, key: str, transfer_record: TransferRecord, end: bytes) -> None:
        job, node_cache = key.partition(".")[0], RemoteNodeCache(self._agent)
        try:
            brought = await asyncio.to_thread(_bring, node_cache, transfer_record)
            if brought is not None and brought.notice is not None:
                self._tell(f"job {job}: {brought.notice}")
        except Exception as error:  # the job is over all the same
            self._tell(f"job {job}: its results could not be brought: {_brief(error)}")
        finally:
            node_cache.close()
        del self._returning[key]
        self._deliver(end)

    def _delete_copy(self, key: str) -> None:
        """Leave nothing of an attempt that has not run."""
        name = self._notes.set_aside(key)
        if name is not None:
            task = asyncio.ensure_future(self._delete(name))
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)

    async def _delete(self, name: str) -> None:
        node_cache = RemoteNodeCache(self._agent)
        try:
            await asyncio.to_thread(node_cache.done, name)
        except (StokerError, OSError, AgentLostError):
            return  # by its note the next conversation begins with that
        finally:
            node_cache.close()
        self._notes.forget(name)


def _ship(node_cache: RemoteNodeCache, transfer_record: TransferRecord) -> str:
    transfer = transfer_record.transfer
    bundle = pack(transfer.snapshot, inside=transfer.inside, run=transfer.run)
    return ship(bundle, node_cache, transfer_record.name)


def _bring(node_cache: RemoteNodeCache, transfer_record: TransferRecord) -> FetchedResults | None:
    transfer = transfer_record.transfer
    if transfer.results is None:
        node_cache.done(transfer_record.name)
        return None
    results = os.fsencode(transfer.results)
    return bring_back(
        node_cache, transfer_record.name, results, transfer.target, transfer.limit_bytes
    )


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0] or repr(error)


def _line(said: object) -> bytes:
    return f"{json.dumps(said)}\n".encode()
