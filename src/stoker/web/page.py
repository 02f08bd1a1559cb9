"""Opens and closes the page for the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import wire
from stoker.web.token import forget_token, token_path

if TYPE_CHECKING:
    from stoker.engine.hub import Hub
    from stoker.web.listener import Listener


class Page:
    """The page of a hub: closed until somebody asks for it, and then remembered over restarts.

    What serves it is imported late, so that a daemon starts quickly (see `daemon/preload.py`).
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._listener: Listener | None = None

    async def reopen(self) -> None:
        """Open the page where it was before the daemon was restarted; say so if that cannot be."""
        from stoker.errors import StokerError

        place = self._hub.config.text("web")
        if place == "none":
            return
        host, _, port = place.rpartition(":")
        try:
            await self.open(host, int(port), new_token=False)
        except StokerError as error:
            self._hub.publisher.on_notice(f"the web page is not there: {error}")

    async def open(self, host: str, port: int | None, *, new_token: bool) -> wire.WebPlace:
        """Open the page; one that is open elsewhere, or with another token, is closed for it."""
        from stoker.web.listener import Listener, bind_port

        now, port = self._listener, port or self._port_before(host)
        if now is not None and (now.host, now.port) == (host, port):
            if not new_token:
                return self._place(now)
            await self.close()  # its port is wanted
        if new_token:
            forget_token(self._hub.home)
        sock = bind_port(host, port)
        try:
            listener = Listener(self._hub, sock, host)
        except BaseException:
            sock.close()
            raise
        await self.close()
        await listener.start()
        self._listener = listener
        return self._place(listener)

    async def close(self) -> None:
        """Close the page, if it is open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    def _port_before(self, host: str) -> int | None:
        """The port where it was the last time, which bookmarks and tunnels know."""
        before, _, port = self._hub.config.text("web").rpartition(":")
        return int(port) if before == host else None

    def _place(self, listener: Listener) -> wire.WebPlace:
        return wire.WebPlace(
            host=listener.host, port=listener.port, token_file=token_path(self._hub.home)
        )
