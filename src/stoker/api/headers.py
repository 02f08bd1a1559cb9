"""Checks of the request headers that tell who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.api.asgi import Scope

# Names that lead only to this machine, with any port: `ssh -L` may use another one.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
# Command-line clients use these names for the daemon's own socket.
_NAMES_OF_CLIENTS = LOOPBACK | {"stoker"}
_SINGLE = frozenset(
    (
        b"host",
        b"origin",
        b"authorization",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"sec-fetch-site",
        b"upgrade",
    )
)


def find_repeated(scope: Scope) -> str | None:
    """Return the name of a decisive header that occurs twice; None if each occurs once."""
    seen: set[bytes] = set()
    for name, _value in scope["headers"]:
        if name in _SINGLE:
            if name in seen:
                return str(name.decode("ascii"))
            seen.add(name)
    return None


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header that occurs at most once."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


def name_of(host: str) -> str:
    """Return a Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def find_browser(scope: Scope) -> str | None:
    """Return the header that shows that a request comes from a browser or under a foreign name; else None.

    A browser can reach the daemon's own socket only if the socket was forwarded to a port. Then any web
    site could control the daemon.
    """
    for name in (b"origin", b"sec-fetch-site"):
        if header(scope, name) is not None:
            return str(name.decode("ascii"))
    host = header(scope, b"host")
    return None if host is None or name_of(host) in _NAMES_OF_CLIENTS else "host"
