"""Proxy of the bridge between the daemon and an agent: transfers the files of attempts.

A tree goes to the node before the attempt that needs it starts. Results come back before the report that
their attempt has ended.
"""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Awaitable, Callable

import msgspec

from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.checkpoint_proxy import CheckpointProxy, HeadFiles
from stoker.bridge.file_writers import FileWriters
from stoker.bridge.remote_node_cache import RemoteNodeCache
from stoker.bridge.transfer_log import TransferLog, TransferRecord
from stoker.errors import StokerError
from stoker.executors.connection import REPLIES
from stoker.executors.contract import (
    AttemptTransfer,
    Checkpoints,
    Ended,
    Lost,
    Refused,
    Revoked,
    Synced,
)
from stoker.executors.node_orders import (
    NODE_ORDERS,
    KeepAttempts,
    NodeOrder,
    RunInCopy,
    SendCheckpoints,
    SendTree,
)
from stoker.staging.bundle import pack
from stoker.staging.manifest import StagingError
from stoker.staging.transfer import FetchedResults, bring_back, ship
from stoker.supervisor import reports
from stoker.supervisor.framing import LineBuffer
from stoker.supervisor.messages import Acknowledge, KillAttempt, RevokeAttempt, StartAttempt


class StagingProxy:
    """Passes on the orders and reports of one stream.

    A start with a transfer waits until its tree is on the node. The transfer log records the copies for the
    next stream. Copies of attempts that did not start are deleted. Whatever goes wrong with files, each start
    gets an answer and each end is reported. `broken` is done if the stream cannot go on.
    """

    def __init__(
        self,
        agent: AgentClient,
        send: Callable[[list[bytes]], Awaitable[None]],
        deliver: Callable[[bytes], None],
        notify: Callable[[str], None],
        files: HeadFiles,
        writers: FileWriters,
    ) -> None:
        self._agent = agent
        self._send = send
        self._deliver = deliver
        self._notify = notify
        self._transfer_log = TransferLog(files.transfers)
        self._writers = writers
        self._checkpoints = CheckpointProxy(agent, notify, files, writers)
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = LineBuffer()
        self._announced: dict[str, AttemptTransfer] = {}
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._downloads: dict[str, asyncio.Task[None]] = {}
        self._deletions: set[asyncio.Task[None]] = set()
        self._ended: set[str] = set()
        self._written: set[str] = set()  # attempts with checkpoints to bring before their ends

    async def pass_on(self, data: bytes) -> None:
        """Pass data of the daemon on to the node."""
        out: list[bytes] = []
        for line in self._buffer.take_in(data):
            orders = NODE_ORDERS.decode(line)
            passed = [order for order in orders if not self._keep(order)]
            if len(passed) == len(orders):
                out.append(line)
            elif passed:
                out.append(NODE_ORDERS.encode(passed))
        if out:
            await self._send(out)

    def bring(self, lines: list[bytes]) -> None:
        """Pass reports of the node on to the daemon. An end waits for the attempt's files."""
        if self._transfer_log.keys or self._written or any(map(_is_about_checkpoints, lines)):
            lines = [line for line in lines if not self._hold_back(line)]
        self._deliver(b"".join(line + b"\n" for line in lines))

    def _hold_back(self, line: bytes) -> bool:
        """Handle a report. Returns whether it must not be passed on now."""
        report = REPLIES.decode(line)
        match report:
            case Ended() | Lost():
                return self._receive(report.key, line)
            case Refused() | Revoked():
                self._delete_copy(report.key)
            case Checkpoints(is_over=True):
                if self._checkpoints.is_wanted(report.key):
                    self._written.add(report.key)
                return True
            case Checkpoints():
                self._checkpoints.mirror(report.key)
                return True
            case Synced():
                uploading = self._uploads.keys()
                for key in self._transfer_log.keys - self._ended - uploading - report.keys:
                    self._delete_copy(key)  # the stream before ended while it was on its way
        return False

    def _receive(self, key: str, end: bytes) -> bool:
        """Fetch the results and checkpoints of an attempt. Returns whether there are any."""
        record = self._transfer_log.read(key)
        if record is None and key not in self._written:
            return False
        self._ended.add(key)
        self._downloads[key] = asyncio.ensure_future(self._download(key, record, end))
        return True

    def close(self) -> None:
        """Stop; the next stream continues."""
        self._checkpoints.close()
        for task in (*self._uploads.values(), *self._downloads.values(), *self._deletions):
            task.cancel()

    def _keep(self, order: NodeOrder) -> bool:
        """Handle an order. Returns whether it must not be passed on now."""
        match order:
            case SendTree():
                self._announced[order.key] = msgspec.convert(order.transfer, AttemptTransfer)
                return True
            case SendCheckpoints():
                self._checkpoints.announce(order.key)
                return True
            case StartAttempt(key):
                self._checkpoints.want(key)
                if key in self._announced or self._checkpoints.is_announced(key):
                    self._uploads[key] = asyncio.ensure_future(self._upload(order))
                    return True
            case KillAttempt(key) | RevokeAttempt(key) if key in self._uploads:
                self._uploads.pop(key).cancel()
                self._report(reports.revoked(key))
                self._delete_copy(key)
                return True
            case KeepAttempts(keys):
                self._transfer_log.void_others(keys)
                for key in keys:
                    self._checkpoints.want(key)
            case Acknowledge(keys):
                self._ended.difference_update(keys)
                for key in self._transfer_log.keys.intersection(keys):
                    self._transfer_log.forget(key)
        return False

    def _report(self, report: str) -> None:
        self._deliver(f"{report}\n".encode())

    async def _upload(self, start: StartAttempt) -> None:
        """Send the files of an attempt, and then its start."""
        key = start.key
        try:
            orders = await self._send_tree(key)
            await self._checkpoints.send(key)
        except Exception as error:  # every start needs an answer
            del self._uploads[key]
            self._report(reports.refused(key, _errno_of(error), _brief(error)))
            self._delete_copy(key)
            return
        # From here on the start cannot be revoked here: an order to end it must follow it.
        del self._uploads[key]
        try:
            await self._send([NODE_ORDERS.encode([*orders, start])])
        except AgentLostError:
            if not self.broken.done():
                self.broken.set_result(None)  # the next stream begins with a Sync

    async def _send_tree(self, key: str) -> list[NodeOrder]:
        """Send the tree of an attempt, if it has one. Returns the order that uses it."""
        transfer = self._announced.pop(key, None)
        if transfer is None:
            return []
        record = TransferRecord(f"{key}-{uuid.uuid4().hex[:8]}", transfer)
        node_cache = RemoteNodeCache(self._agent)
        try:
            self._transfer_log.write(key, record)
            folder = await asyncio.to_thread(_ship, node_cache, record)
        finally:
            node_cache.close()
        run = None if transfer.run is None else os.path.join(folder, transfer.run[0])
        return [RunInCopy(key, os.path.join(folder, transfer.inside), run)]

    async def _download(self, key: str, record: TransferRecord | None, end: bytes) -> None:
        """Fetch the files of an attempt, and then report its end."""
        if record is not None:
            await self._fetch_results(key, record)
        if key in self._written:
            self._written.discard(key)
            problem = await self._checkpoints.bring(key)
            if problem is not None:
                job = key.partition(".")[0]
                self._notify(f"job {job}: its checkpoints stay on its node: {problem}")
                self._report(reports.stayed(key, problem))
        del self._downloads[key]
        self._deliver(end + b"\n")

    async def _fetch_results(self, key: str, record: TransferRecord) -> None:
        job, node_cache = key.partition(".")[0], RemoteNodeCache(self._agent)
        try:
            brought = await self._writers.run(_bring, node_cache, record)
            if brought is not None and brought.notice is not None:
                self._notify(f"job {job}: {brought.notice}")
        except Exception as error:  # the job has ended nevertheless
            self._notify(f"job {job}: its results could not be brought: {_brief(error)}")
        finally:
            node_cache.close()

    def _delete_copy(self, key: str) -> None:
        """Delete the copy of an attempt that has not run."""
        name = self._transfer_log.set_aside(key)
        if name is not None:
            task = asyncio.ensure_future(self._delete(name))
            self._deletions.add(task)
            task.add_done_callback(self._deletions.discard)

    async def _delete(self, name: str) -> None:
        node_cache = RemoteNodeCache(self._agent)
        try:
            await asyncio.to_thread(node_cache.done, name)
        except (StokerError, OSError, AgentLostError):
            return  # the transfer log keeps it; the next stream deletes it
        finally:
            node_cache.close()
        self._transfer_log.forget(name)


def _ship(node_cache: RemoteNodeCache, record: TransferRecord) -> str:
    transfer = record.transfer
    bundle = pack(transfer.snapshot, inside=transfer.inside, run=transfer.run)
    return ship(bundle, node_cache, record.name)


def _bring(node_cache: RemoteNodeCache, record: TransferRecord) -> FetchedResults | None:
    transfer = record.transfer
    if transfer.results is None:
        node_cache.done(record.name)
        return None
    results = os.fsencode(transfer.results)
    return bring_back(node_cache, record.name, results, transfer.target, transfer.limit_bytes)


def _is_about_checkpoints(line: bytes) -> bool:
    return line.startswith(b'["checkpoints"')


def _errno_of(error: Exception) -> int:
    """Return the errno of a refusal, which decides whether the job is tried again; 0 if it is not."""
    if isinstance(error, ConnectionError):
        return errno.EAGAIN
    return error.errno if isinstance(error, StagingError) else 0


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0] or repr(error)
