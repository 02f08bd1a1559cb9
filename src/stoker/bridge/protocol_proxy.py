"""Proxy between a head and the supervisor of a node: passes orders and reports on, with paths of the node.

Logs go to files of the node and are told to the head before the end of their job is. What the head has
files of its own for, scripts and checkpoints, is found in folders of the node.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.bridge.log_forwarder import LogForwarders, Piece
from stoker.checkpoints import checkpoint_path
from stoker.executors.connection import REPLIES
from stoker.executors.contract import Ended, Lost, Refused, Revoked, Started
from stoker.executors.node_orders import (
    NODE_ORDERS,
    ForgetLogs,
    NodeOrder,
    RunInCopy,
    SendScript,
    SendTree,
)
from stoker.supervisor import reports
from stoker.supervisor.framing import SUPERVISOR_ORDERS, LineBuffer
from stoker.supervisor.messages import (
    Acknowledge,
    DefineContext,
    DefinePlace,
    ForgetContext,
    Order,
    StartAttempt,
)

_LOG_PERIOD_S = 0.2
_REPLY_BYTES = 1 << 20
_PRIVATE = -1  # the number of a context that no head uses


class Reply(NamedTuple):
    """What has come since: pieces of logs to be written first, and then reports to be passed on."""

    pieces: list[Piece]
    reports: bytes


class WaitingReport(NamedTuple):
    """A line of the supervisor that the head has not read, and the attempt that is over by it, if any."""

    line: bytes
    over: str | None


class ProtocolProxy:
    """One connection to the supervisor. What it has told counts as heard when more is asked for."""

    def __init__(
        self, connection: socket.socket, folder: str, name: str, trails: LogForwarders
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._name = name
        self._trails = trails
        self._inbox = LineBuffer()
        self._heard = LineBuffer()
        self._waiting: deque[WaitingReport] = deque()
        self._contexts: dict[int, DefineContext] = {}
        self._copies: dict[str, RunInCopy] = {}
        self._scripts: dict[str, str] = {}
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._looked_up: dict[tuple[str, str], str | None] = {}
        self.running: dict[str, int] = {}
        self.places: dict[int, tuple[str, ...]] = {}
        self.place_of: dict[str, int] = {}
        self.is_over = False
        connection.setblocking(False)
        trails.start_over()
        self._task = asyncio.ensure_future(self._listen())

    async def write(self, data: bytes) -> None:
        """Pass on the orders of the head, one after another."""
        lines = self._inbox.take_in(data)
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
        """Give the supervisor orders of the node's own."""
        async with self._turn:
            line = SUPERVISOR_ORDERS.encode(orders)
            await asyncio.get_running_loop().sock_sendall(self._connection, line)

    async def read(self, patience_s: float) -> Reply | None:
        """What has come, as soon as anything has; None once the supervisor is gone and all is told."""
        self._trails.confirm()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while True:
            reply = self._take()
            if reply.pieces or reply.reports:
                return reply
            if self.is_over:
                return None
            left_s = deadline - loop.time()
            if left_s <= 0:
                return reply
            self._news.clear()
            pause_s = min(left_s, _LOG_PERIOD_S if self.running else left_s)
            try:
                await asyncio.wait_for(self._news.wait(), pause_s)
            except asyncio.TimeoutError:
                continue

    async def gone(self) -> None:
        """Wait until the supervisor is gone, or we have let go of it."""
        await asyncio.wait((self._task,))

    def close(self) -> None:
        """Let go of the supervisor."""
        self._task.cancel()
        self._connection.close()
        self.is_over = True
        self._news.set()

    def _take(self) -> Reply:
        pieces: list[Piece] = []
        lines = bytearray()
        size = 0
        while self._waiting and size < _REPLY_BYTES:
            line, key = self._waiting[0]
            while key is not None and (piece := self._trails.more_of(key)) is not None:
                pieces.append(piece)
                size += len(piece.data)
                if size >= _REPLY_BYTES:
                    return Reply(pieces, bytes(lines))
            self._waiting.popleft()
            lines += line + b"\n"
            size += len(line)
        if self.running and size < _REPLY_BYTES:
            pieces += self._trails.more()
        return Reply(pieces, bytes(lines))

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, msgspec.DecodeError):
            while data := await loop.sock_recv(self._connection, 1 << 18):
                for line in self._heard.take_in(data):
                    self._waiting.append(WaitingReport(line, self._note(line)))
                self._news.set()
        self.is_over = True
        self._news.set()

    def _note(self, line: bytes) -> str | None:
        """Keep track of what runs; returns the attempt that is over by this report, if any."""
        report = REPLIES.decode(line)
        match report:
            case Started():
                self.running[report.key] = report.pid
            case Revoked():
                self._forget(report.key)
            case Ended() | Lost() | Refused():
                self.running.pop(report.key, None)
                self.place_of.pop(report.key, None)
                return report.key
        return None

    def _forget(self, key: str) -> None:
        """Leave nothing of an attempt, nor of its job unless it has left something itself to go on from."""
        self.place_of.pop(key, None)
        self._trails.end(key)
        job = key.partition(".")[0]
        if any(each.partition(".")[0] == job for each in (*self.place_of, *self.running)):
            return
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._folder, "checkpoints", checkpoint_path(int(job))))
        script = os.path.join(self._folder, "scripts", job)
        if script not in self._scripts.values():  # else the next start waits for its tree
            with contextlib.suppress(FileNotFoundError):
                os.unlink(script)

    async def _translate(self, order: NodeOrder) -> list[Order]:
        """The orders that the supervisor gets for one of the head's."""
        match order:
            case DefineContext():
                if "STOKER_CHECKPOINTS" in order.env:
                    order.env["STOKER_CHECKPOINTS"] = os.path.join(self._folder, "checkpoints")
                self._contexts[order.number] = order
            case ForgetContext():
                self._contexts.pop(order.number, None)
            case DefinePlace():
                self.places[order.number] = tuple(order.keys)
            case Acknowledge():
                for key in order.keys:
                    self._forget(key)
            case RunInCopy():
                self._copies[order.key] = order
                return []
            case SendScript():
                content = base64.b64decode(order.content)
                self._scripts[order.path] = self._write_script(order.path, content)
                return []
            case ForgetLogs():
                self._trails.end_all()
                return []
            case SendTree():  # the head's side of the bridge keeps these
                return []
            case StartAttempt():
                return await self._translate_start(order)
        return [order]

    async def _translate_start(self, start: StartAttempt) -> list[Order]:
        key, log = start.key, start.log
        argv = [self._scripts.pop(word, word) for word in start.argv]
        context = self._contexts[start.context]
        ahead: list[Order] = []
        if (copy := self._copies.pop(key, None)) is not None:
            context = _private_context(context, copy)
            ahead = [context]
        missing = await self._find_missing(context.cwd, argv[0])
        if missing is not None:
            self._refuse(key, f"{self._name} has no {missing}")
            return []
        job = key.partition(".")[0]
        kept = os.path.join(self._folder, "checkpoints", checkpoint_path(int(job)))
        os.makedirs(kept, exist_ok=True)
        here = None if log is None else self._trails.begin(key, log, start.log_offset)
        self.place_of[key] = start.place
        return [*ahead, start._replace(context=context.number, argv=argv, log=here)]

    async def _find_missing(self, folder: str, program: str) -> str | None:
        """What a start needs and the node does not have; looked up aside, for a file system may hang."""
        asked = folder, program
        if asked not in self._looked_up:
            self._looked_up[asked] = await asyncio.to_thread(_find_missing, folder, program)
        return self._looked_up[asked]

    def _refuse(self, key: str, reason: str) -> None:
        line = reports.refused(key, errno.ENOENT, reason).encode()
        self._waiting.append(WaitingReport(line, key))
        self._news.set()

    def _write_script(self, path: str, text: bytes) -> str:
        here = os.path.join(self._folder, "scripts", os.path.basename(path))
        os.makedirs(os.path.dirname(here), mode=0o700, exist_ok=True)
        write_whole(here, text, mode=0o700)
        return here


def _find_missing(folder: str, program: str) -> str | None:
    if not os.path.isdir(folder):
        return f"folder {folder}"
    return program if program.startswith("/") and not os.path.exists(program) else None


def _private_context(context: DefineContext, copy: RunInCopy) -> DefineContext:
    """The surroundings of one attempt alone, in place of the ones for the attempt before it."""
    env = {**context.env, "PWD": copy.folder}
    if copy.run_dir is not None:
        env["STOKER_RUN_DIR"] = copy.run_dir
    return DefineContext(_PRIVATE, env, copy.folder, context.shell)
