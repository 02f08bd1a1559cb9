"""Opens, moves and closes the page of a daemon."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from stoker import wire
from stoker.errors import StokerError
from stoker.web.token import (
    forget_metrics_token,
    forget_secrets,
    keep_metrics_token,
    read_secrets,
    renew_secrets,
    token_path,
)

if TYPE_CHECKING:
    import socket

    from stoker.engine.context import QueueContext
    from stoker.web.listener import WebListener

LOOPBACK = "127.0.0.1"
# In place of an address: the page has no TCP port, only its unix socket.
NO_HOST = "none"
SOCKET_NAME = "web.sock"


class PageControl:
    """The page of a queue: closed until a user opens it, and opened again after a restart.

    Each opening makes new secrets. The server is imported late, so that a daemon starts quickly (see
    `daemon/preload.py`).
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._listener: WebListener | None = None

    async def reopen(self) -> None:
        """Open the page where it was before the restart; a notice says so if that fails.

        Open tabs reconnect with their handover secret. If another process has taken the port, the
        secrets are removed: the tabs would connect to that process, and it may have been sent the token
        for the metrics.
        """
        place = self._context.config.text("web")
        if place == "none":
            return
        host, _, port = place.rpartition(":")
        before = read_secrets(self._context.home)
        handed_over = None if before is None else before.handover
        try:
            await self._serve(host, int(port), self._bind(host, (int(port),)), handed_over)
        except StokerError as error:
            forget_secrets(self._context.home)
            forget_metrics_token(self._context.home)
            notice = f"the web page is closed: {error}; stoker web opens it again, --port N at another port"
            self._context.publisher.on_notice(notice)

    async def open(self, host: str | None, port: int | None, *, new_token: bool) -> wire.WebPlace:
        """Open the page, or move it to another address or token if it is open.

        A name can have several addresses, and a browser may try one where another user listens. The
        page and its link therefore use the address that the name stands for.
        """
        host = None if host is None else self._address_of(host)
        now = self._listener
        if now is not None:
            host, port = host or now.host, port or now.port
            if (host, port) == (now.host, now.port) and not new_token:
                return self._place(now)
        host = host or LOOPBACK
        if new_token:
            forget_metrics_token(self._context.home)
        try:
            sock = await self._take_port(host, self._choices(host, port))
        except StokerError as error:
            raise StokerError(f"{error}; name another --port") from None
        port = (port or self._choices(host, None)[0]) if sock is None else sock.getsockname()[1]
        return self._place(await self._serve(host, port, sock, None))

    async def close(self) -> None:
        """Close the page; links to it become invalid."""
        await self.leave()
        forget_secrets(self._context.home)

    async def leave(self) -> None:
        """Stop serving; open tabs can reconnect when the page opens again at the same address."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    async def _take_port(self, host: str, choices: tuple[int, ...]) -> socket.socket | None:
        """Listen at one of these ports, even if the page itself uses it at another address."""
        now = self._listener
        if now is None or now.port != choices[0]:
            return self._bind(host, choices)
        await self.leave()
        try:
            return self._bind(host, choices)
        except StokerError:
            await self._serve(now.host, now.port, self._bind(now.host, (now.port,)), None)
            raise

    @staticmethod
    def _address_of(host: str) -> str:
        from stoker.web.port import resolve

        return host if host == NO_HOST else resolve(host)

    def _bind(self, host: str, choices: tuple[int, ...]) -> socket.socket | None:
        from stoker.web.port import bind_port

        return None if host == NO_HOST else bind_port(host, *choices)

    async def _serve(
        self, host: str, port: int, sock: socket.socket | None, handed_over: str | None
    ) -> WebListener:
        """Serve with new secrets, in place of the present listener."""
        from stoker.api.server import bind
        from stoker.web.listener import WebListener
        from stoker.web.sessions import Sessions

        await self.leave()
        home = self._context.home
        with contextlib.ExitStack() as stack:
            if sock is not None:
                stack.enter_context(sock)
            unix_socket = stack.enter_context(bind(os.path.join(home, SOCKET_NAME)))
            try:
                sessions = Sessions(renew_secrets(home), handed_over)
                metrics_token = keep_metrics_token(home)
            except OSError as error:
                raise StokerError(f"cannot write {token_path(home)}: {error.strerror}") from None
            stack.pop_all()
        self._listener = WebListener(
            self._context, sock, unix_socket, (host, port), sessions, metrics_token
        )
        await self._listener.start()
        return self._listener

    def _choices(self, host: str, port: int | None) -> tuple[int, ...]:
        """Return the ports to try: the given one, or the last one, the user's default port and any."""
        from stoker.web.port import default_port

        if port is not None:
            return (port,)
        before, _, last = self._context.config.text("web").rpartition(":")
        known = (int(last),) if before == host else ()
        return (*known, default_port(), 0)

    def _place(self, listener: WebListener) -> wire.WebPlace:
        home = self._context.home
        return wire.WebPlace(
            host=listener.host,
            port=listener.port,
            token_file=token_path(home),
            socket=os.path.join(home, SOCKET_NAME),
        )
