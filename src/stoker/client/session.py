"""Requests to the daemon; connects again if the connection broke and a repetition is harmless.

Imports next to nothing: verbs that need no more than a line of text from the daemon use it as it is.
"""

from __future__ import annotations

import time

from stoker.client.fast_json import dumps
from stoker.client.transport import BrokenError, Connection, NoDaemonError, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stoker import wire

Value = str | int | float | bool | list[str] | None

_TIMEOUT_S = 10.0
_STEP_S = 0.05


def make_target(verb: str, selection: wire.Selection | None = None, **query: Value) -> str:
    """Return the path and query string of a verb; None and a selection's defaults are left out."""
    if selection is not None:
        query = {
            "ids": selection.ids,
            "states": [state.value for state in selection.states],
            "project": selection.project,
            "all": selection.all or None,
            **query,
        }
    words = [
        f"{name}={quote(each if isinstance(each, str) else dumps(each))}"
        for name, value in query.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    return f"/v1/{verb}?{'&'.join(words)}" if words else f"/v1/{verb}"


class Session:
    """Keeps one connection for requests, and opens another one for each stream.

    `restart` starts a daemon that died again; `start` starts one wherever none runs.
    """

    def __init__(self, home: str, *, start: bool = False, restart: bool = True) -> None:
        self.home = home
        self.start = start
        self._restart = restart
        self._connection: Connection | None = None

    def __enter__(self) -> Session:  # noqa: PYI034 - typing has Self, and costs too much
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, target: str) -> bytes:
        """Send a GET; a second time if the daemon goes away meanwhile."""
        try:
            return self.request("GET", target)
        except BrokenError:
            self.wait_for_daemon()
            return self.request("GET", target)

    def request(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Send a request once; after a BrokenError it is unknown whether the daemon acted on it."""
        if self._connection is not None and not self._connection.is_usable():
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.request(method, target, body).body

    def stream(self, target: str) -> tuple[dict[str, str], Iterator[bytes]]:
        """Return the headers and the chunks of a stream; BrokenError if it ends too early."""
        connection = self._connect()
        try:
            headers, chunks = connection.stream(target)
        except BaseException:
            connection.close()
            raise
        return headers, _closing(connection, chunks)

    def lines(self, target: str) -> Iterator[bytes]:
        """Yield the lines of a stream as they arrive."""
        _headers, chunks = self.stream(target)
        return _split_lines(chunks)

    def wait_for_daemon(self, on_notice: Callable[[str], None] | None = None) -> None:
        """Wait until a daemon listens again; one that was stopped has 10 seconds to come back.

        `on_notice` is called when the wait begins, and when the daemon is back.
        """
        self.close()
        deadline = time.monotonic() + _TIMEOUT_S
        is_announced = False
        while True:
            try:
                self._connection = self._connect()
            except NoDaemonError as error:
                if time.monotonic() > deadline:
                    raise NoDaemonError(
                        f"the daemon was stopped and is not back after {_TIMEOUT_S:.0f}s:"
                        " running jobs go on; stoker daemon start starts it, then ask again",
                        died=error.died,
                    ) from None
                if on_notice is not None and not is_announced:
                    on_notice(
                        "the daemon was stopped; running jobs go on:"
                        f" waiting up to {_TIMEOUT_S:.0f}s for it to be back"
                    )
                    is_announced = True
                time.sleep(_STEP_S)
            else:
                if on_notice is not None and is_announced:
                    on_notice("the daemon is back")
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
