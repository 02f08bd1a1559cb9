"""Leases: each GPU has one file, and the Stoker that holds the file's flock holds the GPU.

Jobs on the GPU inherit the descriptor, so the GPU stays taken while a job runs, even if its scheduler is
killed. Every user of the machine can write to the folder of these files: each file is checked before use,
and a lease is confirmed again while it is held. Standard library only, because the supervisor takes the
leases.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
import zlib
from typing import NamedTuple

ROOT_FOLDER = "/run/stoker/leases"
SHARED_FOLDER = "/tmp/stoker-leases"  # noqa: S108 - shared by design; its files are checked

_SAFE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
# open() must not block on another user's pipe or on a file with a kernel lease (fcntl F_SETLEASE).
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MADE_FOR_ALL = 0o1777
_ROOT_UID = 0


class UnsafeError(OSError):
    """A lease folder or file that cannot be trusted. The text says what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)

    def __str__(self) -> str:
        return str(self.strerror)


class Lock(NamedTuple):
    """A locked lease file: its descriptor, its path, and its device and inode when it was locked."""

    fd: int
    path: str
    file: tuple[int, int]

    def is_in_place(self) -> bool:
        """Whether the path still leads to this file, where other Stokers look for it."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == self.file


class Lease:
    """An exclusive hold on one GPU, from `take` until `release`."""

    def __init__(self, key: str, locks: list[Lock]) -> None:
        self.key = key
        self._locks = locks

    @property
    def fd(self) -> int:
        """The descriptor of the lock in the first folder."""
        return self._locks[0].fd

    @property
    def path(self) -> str:
        """The file that decides whether this lease is in force."""
        return _path(lease_folders()[0], self.key)

    @property
    def fds(self) -> list[int]:
        """All descriptors that a job on this GPU inherits."""
        return [lock.fd for lock in self._locks]

    def touch(self) -> None:
        """Update the files' times, so that cleaners of old files keep them."""
        for lock in self._locks:
            with contextlib.suppress(OSError):
                os.utime(lock.fd)

    def is_in_force(self) -> bool:
        """Whether other Stokers see this lease: its file is still under its path."""
        first = self._locks[0]
        return first.path == self.path and first.is_in_place()

    def renew(self, what: str) -> bool:
        """Take a lease again that is no longer in force; False if another process holds it now.

        Raises OSError if leases cannot be kept at all. In both cases the locks held before stay held.
        """
        locks = _lock_all(self.key, self._locks)
        if locks is None:
            return False
        kept = {lock.fd for lock in locks}
        for lock in self._locks:
            if lock.fd not in kept:
                os.close(lock.fd)
        self._locks = locks
        _write_note(locks, what)
        return True

    def release(self) -> None:
        """Release the GPU, even if leftover processes of jobs still have the descriptor open.

        The file's time changes last: it tells Stokers that watch the folder that the lock can be taken.
        """
        for lock in reversed(self._locks):
            with contextlib.suppress(OSError):
                os.ftruncate(lock.fd, 0)
            fcntl.flock(lock.fd, fcntl.LOCK_UN)
            with contextlib.suppress(OSError):
                os.utime(lock.fd)
            os.close(lock.fd)

    def leave_to_jobs(self) -> None:
        """Close our descriptors alone: the GPU is free when the jobs that inherited them have ended."""
        for lock in self._locks:
            os.close(lock.fd)


def lease_folders() -> list[str]:
    """Return the folders with the lease files of this host, in locking order.

    The first folder decides. The second one excludes a Stoker that took its lease before root created the
    first folder; it is used only if it exists.
    """
    named = os.environ.get("STOKER_LEASE_DIR")
    if named:
        return [named]
    if os.path.lexists(ROOT_FOLDER):
        return [ROOT_FOLDER, SHARED_FOLDER]
    return [SHARED_FOLDER]


def take(key: str, what: str) -> Lease | None:
    """Take a GPU's lease; None if another process holds it. Raises OSError if leases cannot be kept."""
    locks = _lock_all(key, [])
    if locks is None:
        return None
    _write_note(locks, what)
    return Lease(key, locks)


def open_to_read(key: str) -> list[int]:
    """Open those lease files of a GPU for reading that exist and are plain files."""
    found = []
    for folder in lease_folders():
        with contextlib.suppress(OSError):
            found.append(open_plain(_path(folder, key), os.O_RDONLY))
    return found


def _lock_all(key: str, own: list[Lock]) -> list[Lock] | None:
    """Lock the GPU's file in each folder, or keep its lock in `own`; None if another process holds one."""
    first, *others = lease_folders()
    locks: list[Lock] = []
    try:
        for folder in (first, *others):
            path = _path(folder, key)
            kept = next((lock for lock in own if lock.path == path and lock.is_in_place()), None)
            try:
                lock = kept or _lock_file(path)
            except OSError:
                if folder == first:
                    raise
                continue  # only the first folder decides, and that one belongs to root
            if lock is None:
                _unlock(locks, own)
                return None
            locks.append(lock)
    except OSError:
        _unlock(locks, own)
        raise
    return locks


def _unlock(locks: list[Lock], own: list[Lock]) -> None:
    for lock in locks:
        if lock not in own:
            os.close(lock.fd)


def _lock_file(path: str) -> Lock | None:
    """Lock a file, and create it if it is missing; None if another process has locked it."""
    folder = os.path.dirname(path)
    check_folder(folder, make=folder == lease_folders()[0] != ROOT_FOLDER)
    while True:
        fd = _open(path)
        try:
            if not _lock(fd):
                os.close(fd)
                return None
        except OSError:
            os.close(fd)
            raise
        found = os.fstat(fd)
        lock = Lock(fd, path, (found.st_dev, found.st_ino))
        if lock.is_in_place():
            return lock
        os.close(fd)  # a cleaner removed the file between open and flock


def _lock(fd: int) -> bool:
    # Two tries: another process may hold the lock for a moment to ask who the holder is.
    for pause_s in (0.002, 0.0):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
        else:
            return True
    return False


def _write_note(locks: list[Lock], what: str) -> None:
    note = json.dumps({"pid": os.getpid(), "what": what, "since": time.time()}).encode()
    for lock in locks:
        with contextlib.suppress(OSError):  # a full disk must not keep a GPU idle
            os.ftruncate(lock.fd, 0)
            os.pwrite(lock.fd, note, 0)


def _path(folder: str, key: str) -> str:
    raw = key.encode("utf-8", "surrogatepass")
    name = "".join(chr(b) if b in _SAFE else f"%{b:02x}" for b in raw)
    if len(name) > 200:
        name = f"{name[:160]}~{zlib.crc32(raw):08x}"
    return os.path.join(folder, f"gpu-{name}")


def _open(path: str) -> int:
    # Without O_CREAT first: fs.protected_regular refuses it for another user's file in a sticky folder.
    while True:
        with contextlib.suppress(FileNotFoundError):
            return open_plain(path, os.O_RDWR)
        try:
            fd = os.open(path, _FLAGS | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        os.fchmod(fd, 0o666)
        return fd


def open_plain(path: str, access: int) -> int:
    """Open a file only if it is a plain file with a single name, so that writes reach no other file."""
    try:
        fd = os.open(path, _FLAGS | access)
    except BlockingIOError:
        raise UnsafeError(f"a process of {_owner_of(path)} blocks {path}: end it") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _no_plain_file(path) from None
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return fd
    os.close(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "removed", path)
    raise _no_plain_file(path)


def _no_plain_file(path: str) -> UnsafeError:
    remedy = f"{_owner_of(path)} or root can remove it (rm -r {path})"
    return UnsafeError(f"{path} is not a plain file with one name: {remedy}")


def check_folder(folder: str, *, make: bool) -> None:
    """Check that only a file's owner, the folder's owner or root can remove a file from this folder."""
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        if not make:
            raise
        found = _make_folder(folder)
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "the lease folder is not a folder", folder)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise UnsafeError(
            f"every user can remove the leases of others in {folder}: chmod 1777 {folder}"
        )
    if folder == ROOT_FOLDER and found.st_uid != _ROOT_UID:
        raise UnsafeError(f"{folder} does not belong to root: sudo chown root {folder}")


def _make_folder(folder: str) -> os.stat_result:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        return os.lstat(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(fd, _MADE_FOR_ALL)  # like /tmp: all users, sticky
        return os.fstat(fd)
    finally:
        os.close(fd)


def _owner_of(path: str) -> str:
    """Return the name of a file's owner, for messages."""
    from stoker.accounts import name_of

    try:
        return name_of(os.lstat(path).st_uid)
    except OSError:
        return "its owner"
