"""Reads commands from a file or pipe: one per line, or separated by NUL bytes."""

from __future__ import annotations

import array
import codecs
import fcntl
import os
import stat
import sys
import termios
from collections import deque

from stoker.errors import StokerError, UsageError

_CHUNK_BYTES = 1 << 16


class Splitter:
    """Splits a stream of bytes into commands; keeps an incomplete command."""

    def __init__(self, *, null: bool) -> None:
        self._end = b"\0" if null else b"\n"
        self._null = null
        # A list of parts: appending to bytes takes quadratic time.
        self._rest: list[bytes] = []
        self._has_begun = False
        self._joined: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Take more of the stream. Returns the commands that are complete now."""
        if not self._has_begun:  # editors on Windows begin a text with a byte order mark
            self._has_begun = True
            data = data.removeprefix(codecs.BOM_UTF8)
        if self._end not in data:
            self._rest.append(data)
            return []
        *pieces, rest = b"".join([*self._rest, data]).split(self._end)
        self._rest = [rest]
        return self._commands(pieces)

    def close(self) -> list[bytes]:
        """End the stream. Returns the last command."""
        last, self._rest = b"".join(self._rest), []
        commands = self._commands([last])
        if self._joined:
            commands += _stripped(b"".join(self._joined))
            self._joined = []
        return commands

    def _commands(self, pieces: list[bytes]) -> list[bytes]:
        commands: list[bytes] = []
        for piece in pieces:
            if not (self._null or self._joined or b"\\" in piece):  # the usual case, kept fast
                command = piece.rstrip()
                if command and not command.lstrip().startswith(b"#"):
                    commands.append(command)
            elif self._null:
                commands += _stripped(piece)
            elif not self._joined and piece.lstrip().startswith(b"#"):
                continue
            elif _is_continued(piece.rstrip(b"\r")):
                if part := piece.rstrip(b"\r")[:-1]:
                    self._joined.append(part)
            else:
                commands += _stripped(b"".join([*self._joined, piece]))
                self._joined = []
        return commands


def _stripped(command: bytes) -> list[bytes]:
    stripped = command.rstrip()
    if _is_continued(stripped):  # the backslash escapes the blank after it
        stripped = command[: len(stripped) + 1]
    return [stripped] if stripped else []


def _is_continued(line: bytes) -> bool:
    """Whether a line ends with a backslash that is not escaped."""
    return (len(line) - len(line.rstrip(b"\\"))) % 2 == 1


def has_open_quote(command: bytes) -> bool:
    """Whether a command ends inside a quote: it can be the first line of a longer command."""
    if command.count(b"'") % 2 == command.count(b'"') % 2 == 0:
        return False
    import shlex

    try:
        shlex.split(command.decode(errors="surrogateescape"), comments=True)
    except ValueError:  # no closing quotation
        return True
    return False


class Source:
    """A file or pipe with commands; reads only as many as are used, and never blocks."""

    def __init__(
        self, fd: int, *, null: bool, name: str = "standard input", endless: bool = False
    ) -> None:
        self.fd = fd
        self._endless = endless
        self._name = name
        self.ended = False
        self._splitter = Splitter(null=null)
        self._commands: deque[bytes] = deque()
        # Regular files are always ready; other files are read when poll reports them.
        self.always_ready = stat.S_ISREG(os.fstat(fd).st_mode)

    def __len__(self) -> int:
        return len(self._commands)

    def read_some(self) -> None:
        """Read once; sets `ended` at the end of the stream."""
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except OSError as error:
            raise StokerError(f"cannot read {self._name}: {error.strerror}") from error
        if data:
            self._commands.extend(self._splitter.feed(data))
        else:
            self.ended = True
            self._commands.extend(self._splitter.close())

    def is_drained(self) -> bool:
        """Whether a source that never ends holds nothing more of what was sent."""
        if not self._endless or self._commands:
            return False
        unread = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, unread)
        return unread[0] == 0

    def take(self) -> bytes | None:
        """The next command, if one has been read."""
        while not self._commands and self.always_ready and not self.ended:
            self.read_some()
        return self._commands.popleft() if self._commands else None


def open_source(path: str | None, *, null: bool, outlive: bool = True) -> Source:
    """Open a file, a FIFO or, for None and `-`, standard input.

    A FIFO stays open when its writers close it; on standard input only with `outlive`.
    """
    if path is None or path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: pipe commands in, or name a file")
        fd = _reopen_fifo(0, os.fstat(0).st_mode) if outlive else 0
        return Source(fd, null=null, endless=fd != 0)
    try:
        kind = os.stat(path).st_mode
        # A pipe without a name, as from <(generate), ends with its writer.
        endless = stat.S_ISFIFO(kind) and os.path.exists(os.path.realpath(path))
        # Opened for writing too, a FIFO does not end when a writer closes it.
        fd = os.open(path, (os.O_RDWR if endless else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(kind):
        os.close(fd)
        raise UsageError(
            f"cannot read {path}: it is a folder; name a file with one command per line"
        )
    return Source(fd, null=null, name=path, endless=endless)


def count_commands(fd: int, *, null: bool) -> int | None:
    """Count the remaining commands of a regular file; None for other files."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    splitter, count = Splitter(null=null), 0
    at = os.lseek(fd, 0, os.SEEK_CUR)
    while data := os.pread(fd, 1 << 20, at):
        count += len(splitter.feed(data))
        at += len(data)
    return count + len(splitter.close())


def _reopen_fifo(fd: int, mode: int) -> int:
    """Open a named FIFO again, for writing too; leave an unnamed pipe as it is."""
    if not stat.S_ISFIFO(mode):
        return fd
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        return fd if path.startswith("pipe:") else os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return fd
