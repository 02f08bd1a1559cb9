"""Proxy of a node between the head and the node's supervisor: passes on orders and reports.

It replaces paths of the head by paths of the node: jobs write their logs, scripts and checkpoints on the
node. The output of a log goes to the head before the report that its job has ended.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from stoker.bridge.agent_messages import StreamOutput
from stoker.bridge.atomic_files import write_whole
from stoker.bridge.checkpoint_watch import CheckpointWatch
from stoker.bridge.log_forwarder import LogForwarders
from stoker.cluster.node_environment import fit_environment
from stoker.core.job import Attempt
from stoker.engine.run_folder import run_variables
from stoker.executors.command import find_program
from stoker.executors.connection import REPLIES
from stoker.executors.contract import Ended, Lost, Refused, Revoked, Started
from stoker.executors.node_orders import (
    NODE_ORDERS,
    KeepAttempts,
    NodeOrder,
    RunInCopy,
    SendCheckpoints,
    SendScript,
    SendTree,
)
from stoker.staging.node_checkpoints import NodeCheckpoints
from stoker.supervisor import reports
from stoker.supervisor.framing import SUPERVISOR_ORDERS, LineBuffer
from stoker.supervisor.lease_file import LEFT
from stoker.supervisor.messages import (
    Acknowledge,
    DefineContext,
    DefineSlot,
    ForgetContext,
    Order,
    StartAttempt,
)
from stoker.supervisor.spawn import explain_failure

_LOG_PERIOD_S = 0.05
_PILOT_DOUBT_S = 1.0
CHECKPOINT_PERIOD_S = 20.0
_REPLY_BYTES = 1 << 20
_PRIVATE = -1  # number of a context that heads do not use


class Found(NamedTuple):
    """The program of a start on this node, and what the node lacks for it, if anything."""

    program: str
    missing: str | None


class WaitingReport(NamedTuple):
    """A report that the head has not read yet, and the attempt that it ends, if any."""

    line: bytes
    ended_key: str | None


class ProtocolProxy:
    """One connection to the supervisor. A call of `read` confirms the output of the call before."""

    def __init__(
        self,
        connection: socket.socket,
        folder: str,
        name: str,
        logs: LogForwarders,
        checkpoints: NodeCheckpoints,
        env: Mapping[str, str],
        ending: str | None = None,
    ) -> None:
        self._ending = ending  # of a pilot: exists once the node ends; None on other nodes
        self._connection = connection
        self._folder = folder
        self._name = name
        self._logs = logs
        self._checkpoints = checkpoints
        self._env = env
        self._watch = CheckpointWatch(checkpoints)
        self._buffer = LineBuffer()
        self._waiting: deque[WaitingReport] = deque()
        self._contexts: dict[int, DefineContext] = {}
        self._copies: dict[str, RunInCopy] = {}
        self._scripts: dict[str, str] = {}
        self._unwritten: dict[str, OSError] = {}  # scripts for which there is no room
        self._has_output = asyncio.Event()
        self._turn = asyncio.Lock()
        self._looked_up: dict[tuple[str, str, str], Found] = {}
        self.running: dict[str, int] = {}
        self.unconfirmed: set[str] = set()  # ended attempts that the head has not acknowledged
        self._keys_of_slot: dict[int, tuple[str, ...]] = {}
        self.slot_of: dict[str, int] = {}
        self.is_over = False
        connection.setblocking(False)
        logs.start_over()
        self._task = asyncio.ensure_future(self._listen())
        self._watching = asyncio.ensure_future(self._watch_checkpoints())

    async def write(self, lines: list[bytes]) -> None:
        """Pass on the orders of the head, in their order."""
        async with self._turn:
            self._looked_up.clear()
            out = bytearray()
            for line in lines:
                orders: list[Order] = []
                for order in NODE_ORDERS.decode(line):
                    orders += await self._translate(order)
                if orders:
                    out += SUPERVISOR_ORDERS.encode(orders)
            if out:
                await asyncio.get_running_loop().sock_sendall(self._connection, bytes(out))

    async def send(self, orders: Sequence[Order]) -> None:
        """Send orders of the node itself to the supervisor."""
        async with self._turn:
            line = SUPERVISOR_ORDERS.encode(orders)
            await asyncio.get_running_loop().sock_sendall(self._connection, line)

    async def read(self, timeout_s: float) -> StreamOutput | None:
        """Wait for output; None once the supervisor is gone and all its output is read."""
        self._logs.confirm()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            output = self._take()
            if output.pieces or output.reports:
                return output
            if self.is_over:
                return None
            left_s = deadline - loop.time()
            if left_s <= 0:
                return output
            self._has_output.clear()
            pause_s = min(left_s, _LOG_PERIOD_S if self.running else left_s)
            try:
                await asyncio.wait_for(self._has_output.wait(), pause_s)
            except asyncio.TimeoutError:
                continue

    def gpus_of(self, key: str) -> tuple[str, ...]:
        """Return the keys of the GPUs of an attempt."""
        return self._keys_of_slot.get(self.slot_of.get(key, -1), ())

    async def gone(self) -> None:
        """Wait until the supervisor is gone or the connection is closed."""
        await asyncio.wait((self._task,))

    def close(self) -> None:
        """Close the connection."""
        self._task.cancel()
        self._watching.cancel()
        self._connection.close()
        self.is_over = True
        self._has_output.set()

    def _take(self) -> StreamOutput:
        output = StreamOutput([], [])
        size = 0
        while self._waiting and size < _REPLY_BYTES:
            line, key = self._waiting[0]
            while key is not None and (piece := self._logs.more_of(key)) is not None:
                output.pieces.append(piece)
                size += len(piece.data)
                if size >= _REPLY_BYTES:
                    return output
            self._waiting.popleft()
            output.reports.append(line)
            size += len(line)
        if self.running and size < _REPLY_BYTES:
            output.pieces.extend(self._logs.more())
        return output

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, msgspec.DecodeError):
            while data := await loop.sock_recv(self._connection, 1 << 18):
                for line in await self._judge(self._buffer.take_in(data)):
                    ended_key = self._note(line)
                    if ended_key is not None and self._checkpoints.signature(_job_of(ended_key)):
                        self._waiting.append(_written(ended_key, is_over=True))
                    self._waiting.append(WaitingReport(line, ended_key))
                self._has_output.set()
        self.is_over = True
        self._has_output.set()

    async def _judge(self, lines: list[bytes]) -> list[bytes]:
        """Return reports with failed attempts as lost if a batch system is ending the node.

        It signals the processes of a job in any order: the node may learn of its end after the attempts have
        ended. So the failures of a pilot wait a moment.
        """
        failed = [] if self._ending is None else [*map(_failed_key, lines)]
        if self._ending is None or not any(failed):
            return lines
        await asyncio.sleep(_PILOT_DOUBT_S)
        if not os.path.exists(self._ending):
            return lines
        return [
            line if key is None else reports.lost(key, LEFT, cut_off=True).encode()
            for line, key in zip(lines, failed, strict=True)
        ]

    async def _watch_checkpoints(self) -> None:
        """Report checkpoints of running attempts, so that the head has them if this node is lost."""
        while True:
            await asyncio.sleep(CHECKPOINT_PERIOD_S)
            for key in [*self.running]:
                if await asyncio.to_thread(self._watch.has_written, _job_of(key)):
                    self._waiting.append(_written(key, is_over=False))
                    self._has_output.set()

    @property
    def jobs(self) -> set[int]:
        """The jobs with attempts that run, start, or have ended without an acknowledgement."""
        return {_job_of(key) for key in (*self.running, *self.slot_of, *self.unconfirmed)}

    def _note(self, line: bytes) -> str | None:
        """Keep track of running attempts. Returns the attempt that this report ends, if any."""
        report = REPLIES.decode(line)
        match report:
            case Started():
                self.running[report.key] = report.pid
            case Revoked():
                self._forget(report.key)
            case Ended() | Lost() | Refused():
                self.running.pop(report.key, None)
                self.slot_of.pop(report.key, None)
                self.unconfirmed.add(report.key)
                return report.key
        return None

    def _forget(self, key: str) -> None:
        """Delete the files of an attempt, and those of its job unless a later attempt needs them."""
        self.slot_of.pop(key, None)
        self._logs.end(key)
        job = _job_of(key)
        if any(_job_of(each) == job for each in (*self.slot_of, *self.running)):
            return
        self._watch.forget(job)
        with contextlib.suppress(OSError):
            os.rmdir(self._checkpoints.path(job))
        script = os.path.join(self._folder, "scripts", str(job))
        if script not in self._scripts.values():  # else a start that waits for its tree needs it
            with contextlib.suppress(FileNotFoundError):
                os.unlink(script)

    async def _translate(self, order: NodeOrder) -> list[Order]:
        """Return the orders for the supervisor that correspond to one of the head."""
        match order:
            case DefineContext():
                env = fit_environment(order.env, self._env)
                if "STOKER_CHECKPOINTS" in env:
                    env["STOKER_CHECKPOINTS"] = os.path.join(self._folder, "checkpoints")
                order = self._contexts[order.number] = order._replace(env=env)
            case ForgetContext():
                self._contexts.pop(order.number, None)
            case DefineSlot():
                self._keys_of_slot[order.number] = tuple(order.keys)
            case Acknowledge():
                self.unconfirmed.difference_update(order.keys)
                for key in order.keys:
                    self._forget(key)
            case RunInCopy() | SendScript() | KeepAttempts():
                self._carry_out(order)
                return []
            case SendTree() | SendCheckpoints():
                return []  # for the staging proxy, which does not pass them on
            case StartAttempt():
                return await self._translate_start(order)
        return [order]

    def _carry_out(self, order: RunInCopy | SendScript | KeepAttempts) -> None:
        """Carry out an order to this proxy."""
        match order:
            case RunInCopy():
                self._copies[order.key] = order
            case SendScript():
                content = base64.b64decode(order.content)
                try:
                    self._scripts[order.path] = self._write_script(order.path, content)
                except OSError as error:
                    self._unwritten[order.path] = error
            case KeepAttempts():
                self._logs.end_others(set(order.keys))

    async def _translate_start(self, start: StartAttempt) -> list[Order]:
        """Return a start with the node's paths; no order if the node refuses it."""
        try:
            return await self._place_start(start)
        except OSError as error:
            self.slot_of.pop(start.key, None)
            self._refuse(start.key, error.errno or errno.EIO, explain_failure(error))
            return []

    async def _place_start(self, start: StartAttempt) -> list[Order]:
        key, log = start.key, start.log
        for word in start.argv:
            if (error := self._unwritten.pop(word, None)) is not None:
                raise error
        argv = [self._scripts.pop(word, word) for word in start.argv]
        context = self._contexts[start.context]
        ahead: list[Order] = []
        if (copy := self._copies.pop(key, None)) is not None:
            context = _private_context(context, copy)
            ahead = [context]
        path = context.env.get("PATH", os.defpath)
        found = await self._look_up(context.cwd, argv[0], path)
        if found.missing is not None:
            self._refuse(key, errno.ENOENT, f"{self._name} has no {found.missing}")
            return []
        argv[0] = found.program
        os.makedirs(self._checkpoints.path(_job_of(key)), exist_ok=True)
        here = None if log is None else self._logs.begin(key, log, start.log_offset)
        self.slot_of[key] = start.slot
        return [*ahead, start._replace(context=context.number, argv=argv, log=here)]

    async def _look_up(self, folder: str, program: str, path: str) -> Found:
        """Look for what a start needs. A thread does it: a file system may hang."""
        asked = folder, program, path
        if asked not in self._looked_up:
            self._looked_up[asked] = await asyncio.to_thread(_look_up, *asked)
        return self._looked_up[asked]

    def _refuse(self, key: str, code: int, reason: str) -> None:
        line = reports.refused(key, code, reason).encode()
        self._waiting.append(WaitingReport(line, key))
        self._has_output.set()

    def _write_script(self, path: str, text: bytes) -> str:
        here = os.path.join(self._folder, "scripts", os.path.basename(path))
        os.makedirs(os.path.dirname(here), mode=0o700, exist_ok=True)
        write_whole(here, text, mode=0o700)
        return here


def _job_of(key: str) -> int:
    return Attempt.from_key(key).job


def _failed_key(line: bytes) -> str | None:
    """Return the attempt that a report ends with a failure; None if it does not."""
    report = REPLIES.decode(line)
    return report.key if isinstance(report, Ended) and report.status else None


def _written(key: str, *, is_over: bool) -> WaitingReport:
    return WaitingReport(reports.checkpoints(key, is_over).encode(), key if is_over else None)


def _look_up(folder: str, program: str, path: str) -> Found:
    """Look for the folder and the program of a start. A program without a slash is looked up in PATH."""
    if not os.path.isdir(folder):
        return Found(program, f"folder {folder}: stoker add --sync ships the working tree to it")
    if "/" in program:
        is_missing = program.startswith("/") and not os.path.exists(program)
        return Found(program, program if is_missing else None)
    found = find_program(program, path)
    return Found(found or program, None if found else f"program {program} in its PATH")


def _private_context(context: DefineContext, copy: RunInCopy) -> DefineContext:
    """Return the context of one attempt; it replaces the private context of the attempt before."""
    env = {**context.env, "PWD": copy.folder}
    if copy.run_dir is not None:
        env |= run_variables(copy.run_dir, env)
    return DefineContext(_PRIVATE, env, copy.folder, context.shell)
