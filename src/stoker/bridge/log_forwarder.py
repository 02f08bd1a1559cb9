"""Forwards the logs of a node's jobs to the head.

A job writes to a file on its node. Its output goes to the head in pieces. Each piece has its offset in the
head's file, so a piece may come twice. Pieces that are not confirmed are sent again; after a restart of the
agent, all are.

A list of the logs is in one file, for the next agent. A file for each log would cost more than everything
else that an agent does for a short job.

    ["KEY", "PATH ON THE HEAD", OFFSET]     the log is forwarded
    ["KEY"]                                 no more
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from stoker.bridge.atomic_files import write_whole
from stoker.staging.blobs import write_at

_PIECE_BYTES = 1 << 18
_LIST = "list"
_COMPACT_BYTES = 1 << 20


class LogPiece(NamedTuple):
    """Part of a log, with its file and offset on the head."""

    path: str
    offset: int
    data: bytes


class LogForwarder(NamedTuple):
    """A log on this node and its file on the head, where its output begins at `base`."""

    here: str
    there: str
    base: int


class LogList:
    """File that lists the logs of a folder. A line that was torn by a full disk or a kill says nothing."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _LIST)
        self._size = 0

    def read(self) -> dict[str, tuple[str, int]]:
        """Return path and offset on the head by the keys of the logs."""
        found: dict[str, tuple[str, int]] = {}
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return found
        self._size = len(data)
        for line in data.splitlines():
            with contextlib.suppress(msgspec.DecodeError, ValueError):
                key, *place = msgspec.json.decode(line, type=list[str | int])
                match place:
                    case [str(there), int(base)]:
                        found[str(key)] = there, base
                    case []:
                        found.pop(str(key), None)
        return found

    def append(self, *words: str | int) -> None:
        """Append a line; raise OSError if it is not in the file."""
        line = b"\n" + msgspec.json.encode(words) + b"\n"  # a torn line may precede it
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            self._size = os.fstat(fd).st_size
        finally:
            os.close(fd)

    @property
    def is_large(self) -> bool:
        """Whether it is to be rewritten."""
        return self._size > _COMPACT_BYTES

    def remove(self) -> None:
        """Remove it: it would list nothing."""
        os.unlink(self._path)
        self._size = 0

    def rewrite(self, logs: Iterable[tuple[str, str, int]]) -> None:
        """Replace it by lines about these logs."""
        lines = b"".join(msgspec.json.encode(log) + b"\n" for log in logs)
        write_whole(self._path, lines)
        self._size = len(lines)


class LogForwarders:
    """All logs of a folder that are forwarded; a new agent finds them again there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sent: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}
        self._logs: dict[str, LogForwarder] = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._list = LogList(folder)
        for key, (there, base) in self._list.read().items():
            self._enter(key, there, base)
        if self._list.is_large:
            self._compact()

    def begin(self, key: str, there: str, base: int) -> str:
        """Forward an attempt's log. Returns the path to which the attempt must write."""
        self._list.append(key, there, base)
        return self._enter(key, there, base).here

    def _compact(self) -> None:
        """Leave the logs that have ended out of the list."""
        with contextlib.suppress(OSError):
            self._list.rewrite((key, log.there, log.base) for key, log in self._logs.items())

    def _enter(self, key: str, there: str, base: int) -> LogForwarder:
        here = os.path.join(self._folder, f"{key}.log")
        log = self._logs[key] = LogForwarder(here, there, base)
        return log

    def start_over(self) -> None:
        """Send again what the head has not confirmed."""
        self._sent = dict(self._confirmed)

    def confirm(self) -> None:
        """Note that all pieces returned until now have arrived."""
        self._confirmed = {key: sent for key, sent in self._sent.items() if key in self._logs}

    def more_of(self, key: str) -> LogPiece | None:
        """Return the next piece of a log; None if there is no more."""
        log = self._logs.get(key)
        if log is None:
            return None
        sent = self._sent.get(key, 0)
        try:
            if (
                os.stat(log.here).st_size <= sent
            ):  # asked many times a second, of each running attempt
                return None
            with open(log.here, "rb") as file:
                file.seek(sent)
                data = file.read(_PIECE_BYTES)
        except OSError:
            return None
        if not data:
            return None
        self._sent[key] = sent + len(data)
        return LogPiece(log.there, log.base + sent, data)

    def more(self) -> list[LogPiece]:
        """Return the next piece of every log that has grown, and an empty one of a new log.

        So the head has the log of a job from its start, and can watch it for growth.
        """
        pieces = []
        for key, log in self._logs.items():
            is_new = key not in self._sent
            piece = self.more_of(key)
            if piece is None and is_new:
                self._sent[key] = 0
                piece = LogPiece(log.there, log.base, b"")
            if piece is not None:
                pieces.append(piece)
        return pieces

    def end(self, key: str) -> None:
        """Delete a log that the head has whole."""
        log = self._logs.pop(key, None)
        if log is not None:
            self._sent.pop(key, None)
            self._confirmed.pop(key, None)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(log.here)
            self._unlist(key)

    def _unlist(self, key: str) -> None:
        # If the disk is full, the head tells the next agent which logs still count.
        with contextlib.suppress(OSError):
            if self._logs:
                self._list.append(key)
            else:
                self._list.remove()
        if self._list.is_large:
            self._compact()

    def end_others(self, keys: Collection[str]) -> None:
        """Delete all logs but these: others may write the head's files of given-up attempts now."""
        for key in self._logs.keys() - keys:
            self.end(key)


def write_piece(piece: LogPiece) -> None:
    """Write a piece into its file on the head."""
    os.makedirs(os.path.dirname(piece.path), exist_ok=True)
    fd = os.open(piece.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        write_at(fd, piece.data, piece.offset)
    finally:
        os.close(fd)
