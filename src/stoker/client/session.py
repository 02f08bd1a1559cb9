"""Requests to the daemon, through connections that are made anew whenever that is harmless."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from stoker.client.transport import BrokenError, Connection, NoDaemonError

_PATIENCE_S = 10.0
_STEP_S = 0.05


class Session:
    """Keeps a connection for one request after another, and makes one of its own for each stream.

    With `restart` a daemon that died is started again; with `start` also one that never was.
    """

    def __init__(self, home: str, *, start: bool = False, restart: bool = True) -> None:
        self.home = home
        self.start = start
        self._restart = restart
        self._connection: Connection | None = None

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, target: str) -> bytes:
        """Ask for something; it does no harm to ask twice, should the daemon go away meanwhile."""
        try:
            return self.request("GET", target)
        except BrokenError:
            self.wait_for_daemon()
            return self.request("GET", target)

    def request(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Ask once; BrokenError tells that nobody knows whether it was done."""
        if self._connection is not None and not self._connection.is_usable():
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.request(method, target, body).body

    def stream(self, target: str) -> tuple[dict[str, str], Iterator[bytes]]:
        """The headers and the chunks of a stream; BrokenError where it ends before its end."""
        connection = self._connect()
        try:
            headers, chunks = connection.stream(target)
        except BaseException:
            connection.close()
            raise
        return headers, _closing(connection, chunks)

    def lines(self, target: str) -> Iterator[bytes]:
        """The lines of a stream, as they come."""
        _headers, chunks = self.stream(target)
        return _split_lines(chunks)

    def wait_for_daemon(self, tell: Callable[[str], None] | None = None) -> None:
        """Return when a daemon listens again; one that was stopped gets a while to be started anew.

        `tell` is called when there is something to wait for, and when the daemon is back.
        """
        self.close()
        deadline = time.monotonic() + _PATIENCE_S
        is_told = False
        while True:
            try:
                self._connection = self._connect()
            except NoDaemonError as error:
                if time.monotonic() > deadline:
                    raise NoDaemonError(
                        f"the daemon was stopped and is not back after {_PATIENCE_S:.0f} s:"
                        " running jobs go on; stoker daemon start starts it, then ask again",
                        died=error.died,
                    ) from None
                if tell is not None and not is_told:
                    tell(
                        "the daemon was stopped; running jobs go on:"
                        f" waiting up to {_PATIENCE_S:.0f} s for it to be back"
                    )
                    is_told = True
                time.sleep(_STEP_S)
            else:
                if tell is not None and is_told:
                    tell("the daemon is back")
                return

    def _connect(self) -> Connection:
        try:
            return Connection(self.home)
        except NoDaemonError as error:
            if not (self.start or (self._restart and error.died)):
                raise
        from stoker.client.autostart import ensure_daemon

        return ensure_daemon(self.home)


def _closing(connection: Connection, chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    finally:
        connection.close()


def _split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
