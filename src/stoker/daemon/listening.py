"""Serves the daemon's socket, and makes the socket again if its file is removed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable

from stoker.api.asgi import App
from stoker.api.server import ApiServer, bind, serve
from stoker.errors import StokerError

_RETRY_S = 5.0
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_READ_BYTES = 1 << 16


async def listen_for_ever(app: App, listener: ApiServer, tell: Callable[[str], None]) -> None:
    """Serve until cancelled. Connections survive when the file of the socket is replaced."""
    servers = [asyncio.ensure_future(serve(app, listener))]
    watch = FolderWatch(os.path.dirname(listener.path))
    path, inode = listener.path, _inode_of(listener.path)
    problem: str | None = None
    try:
        while True:
            timeout_s = None if problem is None and watch.works else _RETRY_S
            await _first([*servers, watch.changed()], timeout_s)
            for server in servers:
                if server.done():
                    server.result()
            if _inode_of(path) == inode:
                continue
            try:
                servers.append(asyncio.ensure_future(serve(app, bind(path))))
            except StokerError as error:
                if str(error) != problem:
                    tell(f"the daemon cannot be reached: {error}; stoker daemon restart may help")
                problem = str(error)
            else:
                tell(f"{path} was removed: the daemon has made it again")
                inode, problem = _inode_of(path), None
    finally:
        watch.close()
        for server in servers:
            server.cancel()
        await asyncio.gather(*servers, return_exceptions=True)


class FolderWatch:
    """Reports when files of a folder appear or vanish (inotify); `works` if the kernel can."""

    def __init__(self, folder: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed: asyncio.Future[None] = self._loop.create_future()
        libc = ctypes.CDLL(None)
        self._fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
        self.works = (
            self._fd >= 0 and libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) >= 0
        )
        if self.works:
            self._loop.add_reader(self._fd, self._on_event)

    def changed(self) -> asyncio.Future[None]:
        """A future that is done after the next change."""
        if self._changed.done():
            self._changed = self._loop.create_future()
        return self._changed

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_event(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, _READ_BYTES)
        if not self._changed.done():
            self._changed.set_result(None)


async def _first(futures: list[asyncio.Future[None]], timeout_s: float | None) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


def _inode_of(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
