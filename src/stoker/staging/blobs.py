"""Contents of files, each under the digest of it: written once, in pieces, and never changed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator

from stoker.staging.manifest import StagingError, is_digest
from stoker.staging.tree_scan import hash_open

MAX_CHUNK_BYTES = 4 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Blobs:
    """A folder of contents. Any number of writers may work on it at once, and be killed at any time."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = os.path.join(folder, "blobs")
        self._parts = os.path.join(folder, "parts")
        self._limit_bytes = limit_bytes
        for each in (self._folder, self._parts):
            os.makedirs(each, mode=0o700, exist_ok=True)

    def path(self, digest: str) -> str:
        """Where a content is, if it is here."""
        if not is_digest(digest):
            raise StagingError(f"{digest[:80]!r} is no digest")
        return os.path.join(self._folder, digest[:2], digest)

    def touch(self, digest: str) -> bool:
        """Whether a content is here; if so, it counts as just used."""
        try:
            os.utime(self.path(digest))
        except FileNotFoundError:
            return False
        return True

    def drop(self, digest: str) -> None:
        """Forget a content."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(digest))

    def put(self, digest: str, size: int, offset: int, data: bytes) -> int:
        """Take a piece of a content; return how much of it is here now, which is where to go on.

        Pieces may come twice, late, or with a gap before them: what does not fit is passed over. The
        last one completes the content, if it has the digest it should have; else all begins anew: 0.
        """
        if not (0 <= offset <= offset + len(data) <= size <= self._limit_bytes):
            raise StagingError(f"a piece of {len(data)} bytes at {offset} of {size} is none")
        if len(data) > MAX_CHUNK_BYTES:
            raise StagingError(f"a piece of {len(data)} bytes is too long")
        if self.touch(digest):
            return size
        with full_told(self._folder), self._part(digest) as fd:
            if self.touch(digest):
                return size  # somebody else has just completed it
            have = os.fstat(fd).st_size
            if have > size:
                os.ftruncate(fd, 0)
                have = 0
            if offset <= have < offset + len(data):
                have += _write(fd, memoryview(data)[have - offset :], have)
            return have if have < size or self._complete(fd, digest) else 0

    @contextlib.contextmanager
    def _part(self, digest: str) -> Iterator[int]:
        """The unfinished content, locked: of two who write the same, one waits for the other."""
        path = os.path.join(self._parts, digest)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_at(fd, path):  # else it was completed, or given up, while we waited
                    yield fd
                    return
            finally:
                os.close(fd)

    def _complete(self, fd: int, digest: str) -> bool:
        part, path = os.path.join(self._parts, digest), self.path(digest)
        os.lseek(fd, 0, os.SEEK_SET)
        if hash_open(fd)[0] != digest:
            os.unlink(part)
            return False
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.rename(part, path)
        os.fchmod(fd, 0o400)
        return True

    def prune(self, keep_bytes: int, spare_s: float) -> int:
        """Drop what was used least recently until no more than this is left; return what went.

        What was used within the last `spare_s` seconds stays: a tree may be on its way.
        """
        now = time.time()
        found = sorted(self._all())
        surplus = sum(size for _used, size, _path in found) - keep_bytes
        gone = 0
        for used, size, path in found:
            if gone >= surplus or now - used < spare_s:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                gone += size
        return gone

    def _all(self) -> Iterator[tuple[float, int, str]]:
        for top in (self._folder, self._parts):
            for folder, _folders, names in os.walk(top):
                for name in names:
                    path = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        found = os.lstat(path)
                        yield found.st_mtime, found.st_size, path


@contextlib.contextmanager
def full_told(folder: str | bytes) -> Iterator[None]:
    """Let a full disk be told in one line."""
    try:
        yield
    except OSError as error:
        where = os.fsdecode(folder)
        if error.errno in _FULL:
            raise StagingError(f"no space is left in {where}: free some, then retry") from error
        raise StagingError(f"cannot write in {where}: {error.strerror}") from error


def _write(fd: int, data: memoryview, offset: int) -> int:
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], offset + written)
    return written


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
