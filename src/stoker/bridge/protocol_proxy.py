"""The way between a head and the supervisor of a node: what is said passes as it is, but for paths.

Logs go to files of the node and are told to the head before the end of their job is. What the head has
files of its own for, scripts and checkpoints, is found in folders of the node.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import socket
from collections import deque
from typing import Any, NamedTuple

from stoker.bridge.atomic_files import write_whole
from stoker.bridge.log_forwarder import LogForwarders, Piece
from stoker.checkpoints import checkpoint_path

_LOG_PERIOD_S = 0.2
_REPLY_BYTES = 1 << 20
_PRIVATE = -1  # the number of a context that no head uses
_OVER = frozenset(("ended", "lost", "refused"))


class Reply(NamedTuple):
    """What has come since: pieces of logs to be written first, and then reports to be passed on."""

    pieces: list[Piece]
    reports: bytes


class ProxySlot(NamedTuple):
    """Where an attempt that has come with its tree runs, and where its run's folder is there."""

    folder: str
    run_dir: str | None


class ProtocolProxy:
    """One connection to the supervisor. What it has told counts as heard when more is asked for."""

    def __init__(
        self, connection: socket.socket, folder: str, name: str, trails: LogForwarders
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._name = name
        self._trails = trails
        self._inbox = b""
        self._heard = b""
        self._waiting: deque[bytes] = deque()
        self._contexts: dict[int, tuple[dict[str, str], str, str]] = {}
        self._proxy_slots: dict[str, ProxySlot] = {}
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
        """Pass on what the head says, in its order; whole lines, each a list of messages."""
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        async with self._turn:
            self._looked_up.clear()
            out = bytearray()
            for line in lines:
                messages: list[list[Any]] = []
                for message in json.loads(line):
                    messages += await self._translate(message)
                if messages:
                    out += f"{json.dumps(messages)}\n".encode()
            if out:
                await asyncio.get_running_loop().sock_sendall(self._connection, bytes(out))

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
        reports = bytearray()
        size = 0
        while self._waiting and size < _REPLY_BYTES:
            line = self._waiting[0]
            key = _key_of_end(line)
            while key is not None and (piece := self._trails.more_of(key)) is not None:
                pieces.append(piece)
                size += len(piece.data)
                if size >= _REPLY_BYTES:
                    return Reply(pieces, bytes(reports))
            self._waiting.popleft()
            reports += line + b"\n"
            size += len(line)
        if self.running and size < _REPLY_BYTES:
            pieces += self._trails.more()
        return Reply(pieces, bytes(reports))

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await loop.sock_recv(self._connection, 1 << 18)
            except OSError:
                data = b""
            if not data:
                break
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                self._note(line)
                self._waiting.append(line)
            self._news.set()
        self.is_over = True
        self._news.set()

    def _note(self, line: bytes) -> None:
        """Know what runs."""
        if line.startswith(b'["started"'):
            _word, key, pid, *_rest = json.loads(line)
            self.running[key] = pid
        elif line.startswith(b'["revoked"'):
            self._forget(str(json.loads(line)[1]))
        elif (key := _key_of_end(line)) is not None:
            self.running.pop(key, None)
            self.place_of.pop(key, None)

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

    async def _translate(self, message: list[Any]) -> list[list[Any]]:
        match message:
            case ["context", number, env, cwd, shell]:
                if "STOKER_CHECKPOINTS" in env:
                    env["STOKER_CHECKPOINTS"] = os.path.join(self._folder, "checkpoints")
                self._contexts[number] = (env, cwd, shell)
                return [["context", number, env, cwd, shell]]
            case ["forget", number]:
                self._contexts.pop(number, None)
            case ["proxy_slot", key, folder, run_dir]:
                self._proxy_slots[key] = ProxySlot(folder, run_dir)
                return []
            case ["script", path, text]:
                self._scripts[path] = self._write_script(path, base64.b64decode(text))
                return []
            case ["place", number, _env, keys, *_parts]:
                self.places[number] = tuple(keys)
            case ["ack", keys]:
                for key in keys:
                    self._forget(key)
            case ["parted"]:
                self._trails.end_all()
                return []
            case ["start", key, context, place, argv, log, *rest]:
                return await self._translate_start(key, context, place, argv, log, rest)
        return [message]

    async def _translate_start(
        self, key: str, number: int, place: int, argv: list[str], log: Any, rest: list[Any]
    ) -> list[list[Any]]:
        argv = [self._scripts.pop(word, word) for word in argv]
        ahead: list[list[Any]] = []
        proxy_slot = self._proxy_slots.pop(key, None)
        if proxy_slot is None:
            folder = self._contexts[number][1]
        else:
            folder = proxy_slot.folder
            ahead = [self._private_context(number, proxy_slot)]
            number = _PRIVATE
        missing = await self._find_missing(folder, argv[0])
        if missing is not None:
            return self._refuse(key, f"{self._name} has no {missing}")
        job = key.partition(".")[0]
        kept = os.path.join(self._folder, "checkpoints", checkpoint_path(int(job)))
        os.makedirs(kept, exist_ok=True)
        here = None if log is None else self._trails.begin(key, *log)
        self.place_of[key] = place
        return [*ahead, ["start", key, number, place, argv, here, *rest]]

    async def _find_missing(self, folder: str, program: str) -> str | None:
        """What a start needs and the node does not have; looked up aside, for a file system may hang."""
        asked = folder, program
        if asked not in self._looked_up:
            self._looked_up[asked] = await asyncio.to_thread(_find_missing, folder, program)
        return self._looked_up[asked]

    def _private_context(self, number: int, proxy_slot: ProxySlot) -> list[Any]:
        """The surroundings of one attempt alone, in place of the ones for the attempt before it."""
        env, _cwd, shell = self._contexts[number]
        own = {**env, "PWD": proxy_slot.folder}
        if proxy_slot.run_dir is not None:
            own["STOKER_RUN_DIR"] = proxy_slot.run_dir
        return ["context", _PRIVATE, own, proxy_slot.folder, shell]

    def _refuse(self, key: str, reason: str) -> list[list[Any]]:
        self._waiting.append(json.dumps(["refused", key, errno.ENOENT, reason]).encode())
        self._news.set()
        return []

    def _write_script(self, path: str, text: bytes) -> str:
        here = os.path.join(self._folder, "scripts", os.path.basename(path))
        os.makedirs(os.path.dirname(here), mode=0o700, exist_ok=True)
        write_whole(here, text, mode=0o700)
        return here


def _find_missing(folder: str, program: str) -> str | None:
    if not os.path.isdir(folder):
        return f"folder {folder}"
    return program if program.startswith("/") and not os.path.exists(program) else None


def _key_of_end(line: bytes) -> str | None:
    """Which attempt a report says is over."""
    word = line[2:].partition(b'"')[0]
    if word.decode("ascii", "replace") not in _OVER:
        return None
    return str(json.loads(line)[1])
