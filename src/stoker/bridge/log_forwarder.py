"""Forwards the logs of a node's jobs to the head.

A job writes to a file on its node. Its output goes to the head in pieces. Each piece has its offset in the
head's file, so a piece may come twice. Pieces that are not confirmed are sent again; after a restart of the
agent, all are.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection
from typing import NamedTuple

from stoker.bridge.atomic_files import write_whole
from stoker.staging.blobs import write_at

_PIECE_BYTES = 1 << 18
_SUFFIX = ".trail"


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


class LogForwarders:
    """All logs of a folder that are forwarded; a new agent finds them again there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sent: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}
        self._logs: dict[str, LogForwarder] = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX):
                with (
                    contextlib.suppress(ValueError, OSError),
                    open(os.path.join(folder, name), encoding="utf-8") as file,
                ):
                    there, base = json.load(file)
                    self._enter(name.removesuffix(_SUFFIX), there, base)

    def begin(self, key: str, there: str, base: int) -> str:
        """Forward an attempt's log. Returns the path to which the attempt must write."""
        note = os.path.join(self._folder, f"{key}{_SUFFIX}")
        write_whole(note, json.dumps([there, base]).encode())
        return self._enter(key, there, base).here

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
            for path in (log.here, os.path.join(self._folder, f"{key}{_SUFFIX}")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

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
