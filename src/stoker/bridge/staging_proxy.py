"""Between a daemon and an agent: trees go ahead of the attempts that need them, results before their ends."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable

import msgspec

from stoker.bridge.agent_calls import AgentLike, AgentLostError
from stoker.bridge.remote_node_cache import RemoteNodeCache
from stoker.bridge.transfer_log import TransferLog, TransferRecord
from stoker.errors import StokerError
from stoker.executors.attempt_transfer import AttemptTransfer
from stoker.executors.connection import REPLIES
from stoker.executors.contract import Ended, Lost, Refused, Revoked, Synced
from stoker.executors.node_orders import (
    NODE_ORDERS,
    ForgetLogs,
    NodeOrder,
    RunInCopy,
    SendTree,
)
from stoker.staging.bundle import pack
from stoker.staging.transfer import FetchedResults, bring_back, ship
from stoker.supervisor import reports
from stoker.supervisor.framing import LineBuffer
from stoker.supervisor.messages import Acknowledge, KillAttempt, RevokeAttempt, StartAttempt


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
        self._inbox = LineBuffer()
        self._transfers: dict[str, AttemptTransfer] = {}
        self._going: dict[str, asyncio.Task[None]] = {}
        self._returning: dict[str, asyncio.Task[None]] = {}
        self._deleting: set[asyncio.Task[None]] = set()
        self._over: set[str] = set()

    async def give_up(self) -> None:
        """Let nothing come of what was started on the node until now: it may be running elsewhere."""
        self._notes.void()
        await self._send(NODE_ORDERS.encode([ForgetLogs()]))

    async def pass_on(self, data: bytes) -> None:
        """Take what the daemon says to the node."""
        out = bytearray()
        for line in self._inbox.take_in(data):
            orders = NODE_ORDERS.decode(line)
            passed = [order for order in orders if not self._keep(order)]
            if len(passed) == len(orders):
                out += line + b"\n"
            elif passed:
                out += NODE_ORDERS.encode(passed)
        if out:
            await self._send(bytes(out))

    def bring(self, lines: bytes) -> None:
        """Take what the node tells to the daemon; ends of transfers wait for their results."""
        if not self._notes.keys:
            self._deliver(lines)
            return
        passed = bytearray()
        for line in lines.splitlines(keepends=True):
            report = REPLIES.decode(line)
            if not isinstance(report, Ended | Lost) or not self._receive(report.key, line):
                passed += line
            if isinstance(report, Refused | Revoked):
                self._delete_copy(report.key)
            elif isinstance(report, Synced):
                for key in self._notes.keys - self._over - self._going.keys() - report.keys:
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

    def _keep(self, order: NodeOrder) -> bool:
        """Whether an order is for us, or has to wait for a tree."""
        match order:
            case SendTree():
                self._transfers[order.key] = msgspec.convert(order.transfer, AttemptTransfer)
                return True
            case StartAttempt(key) if key in self._transfers:
                name = f"{key}-{uuid.uuid4().hex[:8]}"
                transfer_record = TransferRecord(name, self._transfers.pop(key))
                self._going[key] = asyncio.ensure_future(self._go(transfer_record, order))
                return True
            case KillAttempt(key) | RevokeAttempt(key) if key in self._going:
                self._going.pop(key).cancel()
                self._report(reports.revoked(key))
                self._delete_copy(key)
                return True
            case Acknowledge(keys):
                self._over.difference_update(keys)
                for key in self._notes.keys.intersection(keys):
                    self._notes.forget(key)
        return False

    def _report(self, report: str) -> None:
        self._deliver(f"{report}\n".encode())

    async def _go(self, transfer_record: TransferRecord, start: StartAttempt) -> None:
        key = start.key
        transfer, node_cache = transfer_record.transfer, RemoteNodeCache(self._agent)
        try:
            self._notes.write(key, transfer_record)
            folder = await asyncio.to_thread(_ship, node_cache, transfer_record)
        except Exception as error:  # nobody else would say what became of it
            del self._going[key]
            self._report(reports.refused(key, 0, _brief(error)))
            self._delete_copy(key)
            return
        finally:
            node_cache.close()
        # From here on the start cannot be recalled: an order to end it has to follow it.
        del self._going[key]
        run = None if transfer.run is None else os.path.join(folder, transfer.run[0])
        copy = RunInCopy(key, os.path.join(folder, transfer.inside), run)
        try:
            await self._send(NODE_ORDERS.encode([copy, start]))
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
