"""Where results come to lie: below one folder, whatever the other side says and the folder holds."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from stoker.staging.manifest import FOLDER, LINK, ManifestEntry
from stoker.staging.tree_scan import hash_open

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ResultWriter:
    """A folder that entries are written below; made if it is not there.

    The folder itself may be reached through links, which are the user's own. Below it none is followed.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._top)

    def holds(self, entry: ManifestEntry) -> bool:
        """Whether an entry lies here just as it is."""
        try:
            with self._open_parent(entry.path) as (folder, name):
                return _is_same(entry, folder, name)
        except OSError:
            return False

    def make(self, entry: ManifestEntry) -> None:
        """Make a folder, or put a link in the place of what is there."""
        with self._open_parent(entry.path) as (folder, name):
            if entry.kind == FOLDER:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, entry.mode | 0o700, dir_fd=folder)
                os.close(os.open(name, _STEP, dir_fd=folder))  # it is one, and not a link to one
                return
            new = f".stoker-link-{os.getpid()}".encode()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            os.symlink(entry.target, new, dir_fd=folder)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextlib.contextmanager
    def part(self, entry: ManifestEntry) -> Iterator[Part]:
        """The file as far as it has come, to be gone on with."""
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
    """A file on its way: nobody sees it under its name before it is whole."""

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
        """How much of it is here."""
        return os.fstat(self._fd).st_size

    def write(self, offset: int, data: bytes) -> None:
        """Write a piece."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            offset, view = offset + written, view[written:]

    def finish(self) -> bool:
        """Give it its name and mode, in the place of what is there, if it is what it should be.

        Else, all of it has to come again.
        """
        os.lseek(self._fd, 0, os.SEEK_SET)
        if hash_open(self._fd)[0] != self._entry.digest:
            os.ftruncate(self._fd, 0)
            return False
        os.fchmod(self._fd, self._entry.mode)
        os.rename(self._unfinished, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        return True

    def give_up(self) -> None:
        """Leave nothing behind."""
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
