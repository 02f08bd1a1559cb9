"""Store of file contents by digest: each is written once, in pieces, and never changed."""

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
    """A folder of contents. Any number of processes may write at once, and be killed at any time."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = os.path.join(folder, "blobs")
        self._parts = os.path.join(folder, "parts")
        self._limit_bytes = limit_bytes
        for each in (self._folder, self._parts):
            os.makedirs(each, mode=0o700, exist_ok=True)

    def path(self, digest: str) -> str:
        """Return the path of a content, whether it is here or not."""
        if not is_digest(digest):
            raise StagingError(f"{digest[:80]!r} is not a digest")
        return os.path.join(self._folder, digest[:2], digest)

    def touch(self, digest: str) -> bool:
        """Whether a content is here; if so, mark it as just used."""
        try:
            os.utime(self.path(digest))
        except FileNotFoundError:
            return False
        return True

    def drop(self, digest: str) -> None:
        """Delete a content."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(digest))

    def put(self, digest: str, size: int, offset: int, data: bytes) -> int:
        """Add a piece of a content. Returns how much of the content is here: the offset to continue at.

        Pieces may come twice, late, or after a gap: a piece that does not fit is ignored. The last piece
        completes the content if the digest is right; otherwise the content is discarded, and 0 is returned.
        """
        if not (0 <= offset <= offset + len(data) <= size <= self._limit_bytes):
            raise StagingError(f"invalid piece: {len(data)} bytes at {offset} of {size}")
        if len(data) > MAX_CHUNK_BYTES:
            raise StagingError(f"invalid piece: {len(data)} bytes are too many")
        if self.touch(digest):
            return size
        with staging_errors(self._folder), self._part(digest) as fd:
            if self.touch(digest):
                return size  # another process has just completed it
            have = os.fstat(fd).st_size
            if have > size:
                os.ftruncate(fd, 0)
                have = 0
            if offset <= have < offset + len(data):
                have += write_at(fd, memoryview(data)[have - offset :], have)
            return have if have < size or self._complete(fd, digest) else 0

    @contextlib.contextmanager
    def _part(self, digest: str) -> Iterator[int]:
        """Open the unfinished content and lock it, so that writers of the same content take turns."""
        path = os.path.join(self._parts, digest)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if _is_at(fd, path):  # else it was completed or discarded while we waited
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
        """Delete the least recently used contents beyond `keep_bytes`. Returns the bytes freed.

        Contents used within the last `spare_s` seconds stay: a transfer may be in progress.
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
def staging_errors(folder: str | bytes) -> Iterator[None]:
    """Turn an OSError, such as a full disk, into a StagingError that names the folder."""
    try:
        yield
    except OSError as error:
        where = os.fsdecode(folder)
        if error.errno in _FULL:
            text = f"no space is left in {where}: free some"
            raise StagingError(text, errno.ENOSPC) from error
        raise StagingError(
            f"cannot write in {where}: {error.strerror}", error.errno or 0
        ) from error


def write_at(fd: int, data: bytes | memoryview, offset: int) -> int:
    """Write all data at an offset. Returns its length."""
    view, written = memoryview(data), 0
    while written < len(view):
        written += os.pwrite(fd, view[written:], offset + written)
    return written


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
