"""The logs of a node's jobs, on their way to the head.

A job writes to a file of its node. Whatever it has written is brought to the head piece by piece, each
with the place where it belongs there, so that a piece may come twice. What is confirmed is not told
again; after a restart everything is.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import NamedTuple

from stoker.bridge.atomic_files import write_whole

_PIECE_BYTES = 1 << 18
_SUFFIX = ".trail"


class LogPiece(NamedTuple):
    """Bytes of a log, and where they belong on the head."""

    path: str
    offset: int
    data: bytes


class LogForwarder(NamedTuple):
    """A log here, and its copy there, which begins at `base`: another attempt may have come before."""

    here: str
    there: str
    base: int


class LogForwarders:
    """All logs that are followed; those of before are found again in the folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sent: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}
        self._trails: dict[str, LogForwarder] = {}
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
        """Follow an attempt's log; returns the path that it is to write to."""
        note = os.path.join(self._folder, f"{key}{_SUFFIX}")
        write_whole(note, json.dumps([there, base]).encode())
        return self._enter(key, there, base).here

    def _enter(self, key: str, there: str, base: int) -> LogForwarder:
        here = os.path.join(self._folder, f"{key}.log")
        trail = self._trails[key] = LogForwarder(here, there, base)
        return trail

    def start_over(self) -> None:
        """Tell a new listener what the last one has not confirmed."""
        self._sent = dict(self._confirmed)

    def confirm(self) -> None:
        """All that was told has arrived."""
        self._confirmed = {key: sent for key, sent in self._sent.items() if key in self._trails}

    def more_of(self, key: str) -> LogPiece | None:
        """The next piece of a log; None if all that is there has been told."""
        trail = self._trails.get(key)
        if trail is None:
            return None
        sent = self._sent.get(key, 0)
        try:
            with open(trail.here, "rb") as file:
                if os.fstat(file.fileno()).st_size <= sent:
                    return None
                file.seek(sent)
                data = file.read(_PIECE_BYTES)
        except OSError:
            return None
        if not data:
            return None
        self._sent[key] = sent + len(data)
        return LogPiece(trail.there, trail.base + sent, data)

    def more(self) -> list[LogPiece]:
        """The next piece of every log that has grown."""
        return [piece for key in self._trails if (piece := self.more_of(key)) is not None]

    def end(self, key: str) -> None:
        """Forget a log that has been told to its end, and that the head has on record."""
        trail = self._trails.pop(key, None)
        if trail is not None:
            self._sent.pop(key, None)
            self._confirmed.pop(key, None)
            for path in (trail.here, os.path.join(self._folder, f"{key}{_SUFFIX}")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)

    def end_all(self) -> None:
        """Forget all logs: the head has given up whatever wrote them, and others may write there now."""
        for key in [*self._trails]:
            self.end(key)


def write_piece(piece: LogPiece) -> None:
    """Put a piece where it belongs, on the head."""
    os.makedirs(os.path.dirname(piece.path), exist_ok=True)
    fd = os.open(piece.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        view, offset = memoryview(piece.data), piece.offset
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written
    finally:
        os.close(fd)
