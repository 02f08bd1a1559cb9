"""Notification of file changes without polling, by one inotify descriptor per event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
import weakref
from collections.abc import Iterator

_MODIFY = 0x002
_ATTRIB = 0x004
_DELETE_SELF = 0x400
_MOVE_SELF = 0x800
_ONESHOT = 0x8000_0000
# A one-shot watch costs nothing until it is renewed, however fast a file grows.
_EVENTS = ctypes.c_uint32(_MODIFY | _ATTRIB | _DELETE_SELF | _MOVE_SELF | _ONESHOT)

_HEADER = struct.Struct("iIII")
_POLL_S = 2.0


class FileWatch:
    """Watches files for its members; the last member that leaves closes the descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.members = 0
        self.turn = asyncio.Lock()
        self._loop = loop
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._awaiting: dict[int, set[asyncio.Future[None]]] = {}

    @contextlib.contextmanager
    def join(self) -> Iterator[None]:
        """Be a member for as long as the block runs."""
        self.members += 1
        try:
            yield
        finally:
            self.members -= 1
            if not self.members and self._fd >= 0:
                self._loop.remove_reader(self._fd)
                os.close(self._fd)
                self._fd = -1
                self._awaiting.clear()

    def change(self, path: str) -> asyncio.Future[None]:
        """Return a future that is done when the file changes from now on; cancel it if it is not needed.

        If the file does not exist yet, or no watch is available, it is done after a while.
        """
        try:
            number = self._add(path)
        except OSError:
            return self.timer(_POLL_S)
        future: asyncio.Future[None] = self._loop.create_future()
        self._awaiting.setdefault(number, set()).add(future)
        future.add_done_callback(lambda done: self._forget(number, done))
        return future

    def timer(self, delay_s: float) -> asyncio.Future[None]:
        """Return a future that is done after a while."""
        future: asyncio.Future[None] = self._loop.create_future()
        handle = self._loop.call_later(delay_s, _finish, future)
        future.add_done_callback(lambda _: handle.cancel())
        return future

    def _add(self, path: str) -> int:
        if self._fd < 0:
            self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            self._loop.add_reader(self._fd, self._on_readable)
        name = os.fsencode(path)
        return self._checked(self._libc.inotify_add_watch(self._fd, name, _EVENTS), path)

    def _forget(self, number: int, future: asyncio.Future[None]) -> None:
        awaiting = self._awaiting.get(number)
        if awaiting is not None:
            awaiting.discard(future)
            if not awaiting:
                del self._awaiting[number]
                self._libc.inotify_rm_watch(self._fd, number)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            at = 0
            while at < len(data):
                number, _mask, _cookie, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size + length
                for future in self._awaiting.pop(number, ()):
                    _finish(future)

    @staticmethod
    def _checked(result: int, path: str | None = None) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, errno.errorcode.get(code, "?"), path)
        return result


_watches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, FileWatch] = (
    weakref.WeakKeyDictionary()
)


def watch_of_loop() -> FileWatch:
    """Return the watch of the running event loop."""
    loop = asyncio.get_running_loop()
    return _watches.get(loop) or _watches.setdefault(loop, FileWatch(loop))


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
