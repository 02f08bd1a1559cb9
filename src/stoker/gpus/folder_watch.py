"""Watches a folder with inotify, so that a process learns of a change without asking again and again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct

MODIFY, ATTRIB, CREATE, DELETE = 0x2, 0x4, 0x100, 0x200
_CHANGES = MODIFY | ATTRIB | CREATE | DELETE
_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
_MOST_BYTES = 65536


class FolderWatch:
    """Names of files in one folder that have changed. `fileno` is stable, also before `begin`.

    Every user can change files there at any rate, so one call reads a bounded amount.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._inotify: int | None = None
        self._folder: str | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has changed."""
        return self._epoll.fileno()

    @property
    def is_active(self) -> bool:
        """Whether changes are seen."""
        return self._inotify is not None

    def begin(self, folder: str) -> bool:
        """Watch a folder; False if it does not exist, or the kernel gives this user no more watches."""
        if self._folder == folder:
            return True
        self._end()
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            return False
        if libc.inotify_add_watch(fd, os.fsencode(folder), _CHANGES) < 0:
            os.close(fd)
            return False
        self._inotify, self._folder = fd, folder
        self._epoll.register(fd, select.EPOLLIN)
        return True

    def read(self) -> dict[str, int]:
        """Return what happened to which names since the last call; an empty name if some were lost."""
        found: dict[str, int] = {}
        if self._inotify is None:
            return found
        try:
            data = os.read(self._inotify, _MOST_BYTES)
        except OSError:
            return found
        at = 0
        while at + _HEAD.size <= len(data):
            _watch, mask, _cookie, length = _HEAD.unpack_from(data, at)
            raw = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
            at += _HEAD.size + length
            name = "" if mask & _OVERFLOW else os.fsdecode(raw)
            found[name] = found.get(name, 0) | mask
        return found

    def close(self) -> None:
        """Stop watching."""
        self._end()
        self._epoll.close()

    def _end(self) -> None:
        if self._inotify is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(self._inotify)
            os.close(self._inotify)
            self._inotify = self._folder = None
