"""Server of the daemon's own socket, for its owner only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from typing import Any

from uvicorn.config import Config

from stoker.api.access import OwnerAccess
from stoker.api.asgi import App
from stoker.api.connection import ServerConnection, Serving
from stoker.errors import StokerError

_MAX_PATH_BYTES = 107
_BACKLOG = 1024
# How many connections an event loop accepts in a row. If no descriptor is left, asyncio logs an error and
# schedules another try, once for each of these: with more than one, both multiply every second.
ACCEPT_AT_ONCE = 1
_IDLE_TIMEOUT_S = 60
_MAX_HEAD_BYTES = 256 * 1024
# Time that a stopping daemon gives to requests in progress.
_GRACE_S = 2.0


class ApiServer(socket.socket):
    """A listening socket with the path of its file, and a fixed backlog."""

    path: str

    def listen(self, _backlog: int = 0, /) -> None:
        """Listen with our backlog, whatever the event loop asks for."""
        super().listen(_BACKLOG)


def bind(path: str) -> ApiServer:
    """Listen at a path. The caller holds the lock of the home, so a dead daemon's socket is replaced.

    The folder is closed to other users first, so that none can connect before the file gets its mode 0600.
    """
    sock = ApiServer(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.path = path
    try:
        _clear(path)
        _bind(sock, path)
        os.chmod(path, 0o600)
        sock.listen()
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise StokerError(f"cannot listen at {path}: {error.strerror}") from error
    return sock


def _clear(path: str) -> None:
    folder = os.path.dirname(path)
    if stat.S_IMODE(os.stat(folder).st_mode) & 0o077:
        os.chmod(folder, 0o700)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _bind(sock: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        sock.bind(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


async def serve(
    app: App, sock: ApiServer, connection: type[ServerConnection] = ServerConnection
) -> None:
    """Serve the owner until cancelled; then return soon, with the socket closed.

    Streams are cut off, so that clients know that they are incomplete; other requests get two seconds. The
    socket's file is removed only at an orderly end: a client that finds a file without a listener knows that
    the daemon died. Installs no signal handlers and no timers.
    """
    config = make_config(OwnerAccess(app))
    state = Serving()
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(
        lambda: connection(config=config, server_state=state, app_state={}, _loop=loop),
        sock=sock,
        backlog=ACCEPT_AT_ONCE,
    )
    try:
        await loop.create_future()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(sock.path)
        loop.remove_reader(sock)
        await asyncio.sleep(0)  # asyncio leaks a connection that it accepted just before close()
        server.close()
        await part(state)


def make_config(app: App, **more: Any) -> Config:
    """Return uvicorn's configuration: its protocols serve, and do nothing else."""
    config = Config(
        app,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_TIMEOUT_S,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        **{"ws": "none", **more},
    )
    config.load()
    # The app logs what matters itself; a stream that is cut off is no error.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return config


async def part(state: Serving) -> None:
    """Close all connections. No request is in progress when this returns."""
    state.is_ending = True
    connections = [each for each in state.connections if isinstance(each, ServerConnection)]
    for socket_ in state.connections - set(connections):
        socket_.shutdown()
    for each in connections:
        if each.is_streaming():
            each.hang_up()
        else:
            each.shutdown()
    await _wait_for_others(state)
    for each in connections:
        each.hang_up()
    for task in state.tasks - {asyncio.current_task()}:
        task.cancel()
    await _wait_for_others(state)


async def _wait_for_others(state: Serving) -> None:
    """Wait a moment for requests to end, except for the current one."""
    others = state.tasks - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_GRACE_S)
