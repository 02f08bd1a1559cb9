"""Reading of pieces of a log by its path, without keeping it open in between."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from stoker.errors import ConflictError

CHUNK_BYTES = 64 * 1024


class LogPosition(NamedTuple):
    """Offset of the next piece, and the file (device and inode) it refers to."""

    offset: int = 0
    file: tuple[int, int] | None = None


def read_piece(path: str, place: LogPosition, end: int | None = None) -> tuple[bytes, LogPosition]:
    """Return at most CHUNK_BYTES from a position on, and the position behind them.

    Returns nothing if there is no file, or none that can be read again, like a terminal. A file that was
    replaced, or truncated below the position, is read from its beginning.
    """
    fd = _open(path)
    if fd is None:
        return b"", place
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return b"", place
        file = (found.st_dev, found.st_ino)
        begun = place.file is not None
        anew = begun and (place.file != file or found.st_size < place.offset)
        offset = 0 if anew else place.offset
        size = CHUNK_BYTES if end is None else max(0, min(CHUNK_BYTES, end - offset))
        data = os.pread(fd, size, offset)
    finally:
        os.close(fd)
    return data, LogPosition(offset + len(data), file if found.st_size >= offset else None)


def size_of(path: str) -> int:
    """Return the size of a log; 0 if there is no file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def offset_of_last(path: str, lines: int) -> int:
    """Return where the last `lines` lines of a file begin; an unfinished last line counts as one."""
    fd = _open(path)
    if fd is None:
        return 0
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return 0
        return _search_backwards(fd, found.st_size, lines)
    finally:
        os.close(fd)


def _search_backwards(fd: int, size: int, lines: int) -> int:
    if not lines or not size:
        return size
    wanted = lines + (os.pread(fd, 1, size - 1) == b"\n")
    end = size
    while end:
        start = max(0, end - CHUNK_BYTES)
        block = os.pread(fd, end - start, start)
        count = block.count(b"\n")
        if count >= wanted:
            at = len(block)
            for _ in range(wanted):
                at = block.rindex(b"\n", 0, at)
            return start + at + 1
        wanted -= count
        end = start
    return 0


def _open(path: str) -> int | None:
    """Open a log for reading; O_NONBLOCK, so that a pipe cannot block the reader."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConflictError(f"cannot read the log {path}: {error.strerror}") from None
