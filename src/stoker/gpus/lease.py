"""Leases: a GPU has one file, and whoever holds its flock holds the GPU, whatever user they are.

The descriptor is inherited by the jobs on that GPU, so killing their scheduler frees nothing while
they run. Standard library only: the shepherd, which takes the leases, has nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import stat
import time
import zlib
from typing import NamedTuple

_SAFE = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


class Holder(NamedTuple):
    """Who holds a lease."""

    pid: int
    user: str
    what: str
    since: float


class Lease:
    """An exclusive hold on one GPU, from `take` until `release`."""

    def __init__(self, key: str, fd: int) -> None:
        self.key = key
        self.fd = fd

    def touch(self) -> None:
        """Tell cleaners of old files that this one is in use."""
        with contextlib.suppress(OSError):
            os.utime(self.fd)

    def release(self) -> None:
        """Give the GPU back, also where jobs' leftovers still have the descriptor open."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


def lease_folder() -> str:
    """The folder that all users of this host share."""
    return os.environ.get("STOKER_LEASE_DIR") or "/tmp/stoker-leases"  # noqa: S108 - shared by design


def take(key: str, what: str) -> Lease | None:
    """Hold a GPU, or None if somebody else does. Raises OSError where leases cannot be kept at all."""
    while True:
        fd = _open(_path(key))
        try:
            locked = _lock(fd)
        except OSError:
            os.close(fd)
            raise
        if not locked:
            os.close(fd)
            return None
        if _is_still_at(fd, _path(key)):
            break
        os.close(fd)  # a cleaner unlinked the file between open and flock
    note = {"pid": os.getpid(), "user": _user_name(), "what": what, "since": time.time()}
    with contextlib.suppress(OSError):  # a full disk must not keep a GPU idle
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(note).encode(), 0)
    return Lease(key, fd)


def _lock(fd: int) -> bool:
    # Tried twice: someone may just be asking who the holder is.
    for pause_s in (0.002, 0.0):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
        else:
            return True
    return False


def holder(key: str) -> Holder | None:
    """Who holds a GPU now; None if nobody does."""
    try:
        fd = os.open(_path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read_note(fd)
    finally:
        os.close(fd)
    return None


def _read_note(fd: int) -> Holder:
    try:
        note = json.loads(os.pread(fd, 4096, 0))
        return Holder(int(note["pid"]), str(note["user"]), str(note["what"]), float(note["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "?", "another Stoker", 0.0)


def _path(key: str) -> str:
    raw = key.encode("utf-8", "surrogatepass")
    name = "".join(chr(b) if b in _SAFE else f"%{b:02x}" for b in raw)
    if len(name) > 200:
        name = f"{name[:160]}~{zlib.crc32(raw):08x}"
    return os.path.join(lease_folder(), f"gpu-{name}")


def _open(path: str) -> int:
    # No O_CREAT at first: fs.protected_regular refuses it on another user's file in a sticky folder.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            _make_folder(os.path.dirname(path))
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        os.fchmod(fd, 0o666)
        return fd


def _make_folder(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
        os.chmod(folder, 0o1777)  # noqa: S103 - like /tmp: all users, sticky
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "the lease folder is not a folder", folder)


def _is_still_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
