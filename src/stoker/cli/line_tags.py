"""`stoker run --tag`: prints whole lines, each with its command's number before it."""

from __future__ import annotations

import contextlib
import os

from stoker.cli.messages import write_all
from stoker.core.job import Attempt
from stoker.engine.foreground_engine import ForegroundEngine
from stoker.store.foreground_runs import ForegroundRun

_CHUNK_BYTES = 1 << 16


class Tagger:
    """Gives each attempt a FIFO for its output, and prints that output line by line."""

    def __init__(self, record: ForegroundRun, foreground: ForegroundEngine) -> None:
        self._record = record
        self._foreground = foreground
        self._open: dict[int, tuple[bytes, bytearray]] = {}
        self._paths: dict[int, str] = {}

    def fifo_for(self, attempt: Attempt) -> str:
        """Make the FIFO for an attempt's output, and read it in the engine's loop."""
        path = self._record.path("tags", attempt.key)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths[fd] = path
        self._open[fd] = (f"[{attempt.job}] ".encode(), bytearray())
        self._foreground.listen(fd, lambda: self._print_lines(fd))
        return path

    def close(self) -> None:
        """Print what is left after all attempts have ended."""
        for fd in list(self._open):
            self._print_lines(fd)
            if fd in self._open:
                self._end(fd)

    def _print_lines(self, fd: int) -> None:
        tag, rest = self._open[fd]
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._end(fd)
            return
        rest += data
        whole, newline, partial = bytes(rest).rpartition(b"\n")
        if newline:
            write_all(1, b"".join(tag + line + b"\n" for line in whole.split(b"\n")))
            rest[:] = partial

    def _end(self, fd: int) -> None:
        tag, rest = self._open.pop(fd)
        if rest:
            write_all(1, tag + bytes(rest) + b"\n")
        self._foreground.unlisten(fd)
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._paths.pop(fd))
