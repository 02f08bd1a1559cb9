"""Serves the app on the daemon's socket, in the daemon's loop: no signals, no lifespan, no ticking."""

from __future__ import annotations

import asyncio
import logging
import socket

from uvicorn.config import Config
from uvicorn.server import ServerState

from stoker.api.access import App, OwnersDoor
from stoker.api.connection import Connection

_IDLE_TIMEOUT_S = 60
_MAX_HEAD_BYTES = 256 * 1024
# What a daemon that goes gives the requests it is busy with.
_GRACE_S = 2.0


async def serve(
    app: App,
    sock: socket.socket,
    until: asyncio.Event,
    connection: type[Connection] = Connection,
) -> None:
    """Serve the owner until the event is set, then return soon; the socket is closed then.

    Streams are cut off, so that whoever reads them knows that they are not at their end; other
    requests get two seconds. Neither signals nor the socket's file are touched.
    """
    config = Config(
        OwnersDoor(app),
        interface="asgi3",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_TIMEOUT_S,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
    )
    config.load()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(
        lambda: connection(config=config, server_state=state, app_state={}, _loop=loop), sock=sock
    )
    try:
        await until.wait()
    finally:
        server.close()
        await _part(state)


async def _part(state: ServerState) -> None:
    connections = [each for each in state.connections if isinstance(each, Connection)]
    for each in connections:
        if each.is_streaming():
            each.hang_up()
        else:
            each.shutdown()
    if state.tasks:
        await asyncio.wait(list(state.tasks), timeout=_GRACE_S)
    for each in connections:
        each.hang_up()
