"""Watches a folder with inotify, so that a process learns of a change without asking again and again."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import termios
import time

MODIFY, ATTRIB, CREATE, DELETE = 0x2, 0x4, 0x100, 0x200
_CHANGES = MODIFY | ATTRIB | CREATE | DELETE
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_HEAD = struct.Struct("iIII")
_MOST_BYTES = 65536
_BURST = 20
_PER_S = 20.0


class FolderChanges:
    """Names of files in one folder that have changed. `fileno` is stable, also before `begin`.

    Every user can change files there at any rate, so one call reads a bounded amount, and after a burst
    `fileno` becomes readable at most 20 times a second.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._inotify: int | None = None
        self._folder: str | None = None
        self._timer: _Timer | None = None
        self._is_resting = False
        self._left = float(_BURST)  # how often it may be readable at once
        self._read_at = 0.0

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has changed."""
        return self._epoll.fileno()

    @property
    def is_active(self) -> bool:
        """Whether changes are seen."""
        return self._inotify is not None

    def begin(self, folder: str) -> bool:
        """Watch a folder; False if it does not exist, or the kernel gives this user no more watches."""
        if self._inotify is not None and self._folder == folder:
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
        if not self._is_resting:
            self._epoll.register(fd, select.EPOLLIN)
        return True

    def read(self) -> dict[str, int]:
        """Return what happened to which names since the last call; an empty name if some were lost."""
        found: dict[str, int] = {}
        # First the timer, which stays readable until it is read, also where no folder is watched.
        if not self._is_rested() or self._inotify is None:
            return found
        if (
            self._pending_bytes() > _MOST_BYTES
        ):  # to read all of it would take longer than to look at all
            folder = self._folder
            self._end()
            if folder is not None:
                self.begin(folder)
            self._count()
            return {"": _OVERFLOW}
        try:
            data = os.read(self._inotify, _MOST_BYTES)
        except OSError:
            return found
        at, is_gone = 0, False
        while at + _HEAD.size <= len(data):
            _watch, mask, _cookie, length = _HEAD.unpack_from(data, at)
            raw = data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0")
            at += _HEAD.size + length
            name = "" if mask & (_OVERFLOW | _IGNORED) else os.fsdecode(raw)
            found[name] = found.get(name, 0) | mask
            is_gone = is_gone or bool(mask & _IGNORED)
        if is_gone:  # the folder was removed; there may be a new one of its name
            self._end()
        self._count()
        return found

    def rest(self, seconds: float) -> None:
        """Report nothing for some time."""
        if self._timer is None:
            self._timer = _Timer()
        self._timer.start(seconds)
        if not self._is_resting:
            self._is_resting = True
            if self._inotify is not None:
                self._epoll.unregister(self._inotify)
            self._epoll.register(self._timer.fd, select.EPOLLIN)

    def close(self) -> None:
        """Stop watching."""
        self._end()
        if self._timer is not None:
            os.close(self._timer.fd)
        self._epoll.close()

    def _pending_bytes(self) -> int:
        assert self._inotify is not None
        count = fcntl.ioctl(self._inotify, termios.FIONREAD, bytes(4))
        return int.from_bytes(count, sys.byteorder)

    def _count(self) -> None:
        """Rest if there were many changes lately."""
        now = time.monotonic()
        self._left = min(_BURST, self._left + _PER_S * (now - self._read_at)) - 1.0
        self._read_at = now
        if self._left < 1.0:
            self.rest(1.0 / _PER_S)

    def _is_rested(self) -> bool:
        if not self._is_resting:
            return True
        assert self._timer is not None
        if not self._timer.is_over():
            return False
        self._is_resting = False
        self._epoll.unregister(self._timer.fd)
        if self._inotify is not None:
            self._epoll.register(self._inotify, select.EPOLLIN)
        return True

    def _end(self) -> None:
        if self._inotify is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(self._inotify)
            os.close(self._inotify)
            self._inotify = self._folder = None


class _Timer:
    """A timer of the kernel with a descriptor; Python has them since 3.13."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self.fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def start(self, seconds: float) -> None:
        """Make the descriptor readable after some time."""
        whole, part = divmod(max(seconds, 0.001), 1.0)
        times = (ctypes.c_long * 4)(0, 0, int(whole), int(part * 1e9))
        self._libc.timerfd_settime(self.fd, 0, times, None)

    def is_over(self) -> bool:
        """Whether the time is over since the last start."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        return True
