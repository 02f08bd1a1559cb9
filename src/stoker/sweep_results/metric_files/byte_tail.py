"""Reader of the bytes that were added to a file."""

from __future__ import annotations

import os
from collections.abc import Iterator

_MOST_BYTES = 16 << 20  # of one read: the rest comes with the next one
_MOST_CHUNKS = 4
_HEAD_BYTES = 256


class ByteTail:
    """Returns what was added to a file since the last time. A file that was replaced is read anew.

    The caller says with `accept` how much it has understood; the rest is returned again with what follows it.
    """

    def __init__(self, path: str, *, follow_links: bool = False) -> None:
        self._path = path
        self._flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        self._flags |= 0 if follow_links else os.O_NOFOLLOW
        self._head = b""
        self._inode = 0
        self.offset = 0
        """How much the caller has accepted; 0 again if the file was replaced."""

    def read(self) -> bytes:
        """Return the bytes after those that were accepted; nothing if the file cannot be read."""
        try:
            file = os.open(self._path, self._flags)
        except OSError:
            return b""
        try:
            facts = os.fstat(file)
            if facts.st_size == self.offset and facts.st_ino == self._inode:
                return b""
            head = os.pread(file, _HEAD_BYTES, 0)
            is_same = facts.st_ino == self._inode and facts.st_size >= self.offset
            if not is_same or head[: len(self._head)] != self._head:
                self.offset, self._inode, self._head = 0, facts.st_ino, b""
            if len(self._head) < _HEAD_BYTES:
                self._head = head
            return os.pread(file, _MOST_BYTES, self.offset)
        except OSError:
            return b""
        finally:
            os.close(file)

    def chunks(self) -> Iterator[bytes]:
        """Yield what `read` returns, as long as the caller accepts something of it, up to a limit."""
        for _chunk in range(_MOST_CHUNKS):
            data, before = self.read(), self.offset
            if not data:
                return
            yield data
            if self.offset == before:
                return

    def accept(self, length: int) -> None:
        """Leave so many bytes out from now on."""
        self.offset += length

    def read_lines(self) -> list[bytes]:
        """Return the whole lines that were added."""
        found = []
        for data in self.chunks():
            whole = data.rfind(b"\n") + 1
            if not whole and len(data) == _MOST_BYTES:
                whole = len(data)  # no line is so long
            self.accept(whole)
            found += data[:whole].splitlines()
        return found
