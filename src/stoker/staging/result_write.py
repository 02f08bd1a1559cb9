"""Safe writing of results below one folder, whatever paths the node sends and the folder contains."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from stoker.staging.blobs import write_at
from stoker.staging.manifest import FOLDER, LINK, ManifestEntry
from stoker.staging.tree_scan import hash_open

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ResultWriter:
    """Writes entries below a folder, which is created if it is missing.

    The path of the folder itself may contain links, which are the user's own. Below it no link is followed.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._top)

    def holds(self, entry: ManifestEntry) -> bool:
        """Whether an identical entry is here."""
        try:
            with self._open_parent(entry.path) as (folder, name):
                return _is_same(entry, folder, name)
        except OSError:
            return False

    def make(self, entry: ManifestEntry) -> None:
        """Create a folder, or replace what is there with a link."""
        with self._open_parent(entry.path) as (folder, name):
            if entry.kind == FOLDER:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, entry.mode | 0o700, dir_fd=folder)
                os.close(os.open(name, _STEP, dir_fd=folder))  # fails for a link
                return
            new = f".stoker-link-{os.getpid()}".encode()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            os.symlink(entry.target, new, dir_fd=folder)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextlib.contextmanager
    def part(self, entry: ManifestEntry) -> Iterator[Part]:
        """Open the unfinished file, to be continued."""
        with self._open_parent(entry.path) as (folder, name):
            unfinished = f".stoker-{entry.digest[:32]}".encode()
            fd = os.open(unfinished, _PART, 0o600, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise FileExistsError(f"{unfinished.decode()} is in the way")
                yield Part(entry, folder, name, unfinished, fd)
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _open_parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        *folders, name = path.split(b"/")
        fd = os.dup(self._top)
        try:
            for each in folders:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, dir_fd=fd)
                below = os.open(each, _STEP, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd, name
        finally:
            os.close(fd)


class Part:
    """An unfinished file. It gets its name only when it is complete."""

    def __init__(
        self, entry: ManifestEntry, folder: int, name: bytes, unfinished: bytes, fd: int
    ) -> None:
        self._entry = entry
        self._folder = folder
        self._name = name
        self._unfinished = unfinished
        self._fd = fd

    @property
    def size(self) -> int:
        """Bytes that are here."""
        return os.fstat(self._fd).st_size

    def write(self, offset: int, data: bytes) -> None:
        """Write a piece."""
        write_at(self._fd, data, offset)

    def finish(self) -> bool:
        """Give the file its name and mode, replacing what is there, if its digest is right.

        If it is wrong, empty the file and return False: all of it must come again.
        """
        os.lseek(self._fd, 0, os.SEEK_SET)
        if hash_open(self._fd)[0] != self._entry.digest:
            os.ftruncate(self._fd, 0)
            return False
        os.fchmod(self._fd, self._entry.mode)
        os.rename(self._unfinished, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        return True

    def give_up(self) -> None:
        """Delete the unfinished file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._unfinished, dir_fd=self._folder)


def _is_same(entry: ManifestEntry, folder: int, name: bytes) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if entry.kind == FOLDER:
        return stat.S_ISDIR(found.st_mode)
    if entry.kind == LINK:
        return stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=folder) == entry.target
    if not stat.S_ISREG(found.st_mode) or found.st_size != entry.size:
        return False
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        return hash_open(fd)[0] == entry.digest and found.st_mode & 0o777 == entry.mode
    finally:
        os.close(fd)
