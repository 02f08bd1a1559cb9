"""The headers of a request that say who asks, and the checks that all doors share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.api.access import Scope

# Names that lead to this machine alone, by whatever port: `ssh -L` may use another one.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
# Command lines come to the daemon's own socket by these.
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
    """The name of a header that is there twice although one of them decides; None if all are single."""
    seen: set[bytes] = set()
    for name, _value in scope["headers"]:
        if name in _SINGLE:
            if name in seen:
                return str(name.decode("ascii"))
            seen.add(name)
    return None


def header(scope: Scope, name: bytes) -> str | None:
    """The value of a header that is there at most once."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


def name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def find_browser(scope: Scope) -> str | None:
    """What shows that a request is a browser's, or was led here by another name; None if nothing does.

    No browser belongs to the daemon's own socket. One can only come there if somebody has forwarded the
    socket to a port, and then any web site could give orders.
    """
    for name in (b"origin", b"sec-fetch-site"):
        if header(scope, name) is not None:
            return str(name.decode("ascii"))
    host = header(scope, b"host")
    return None if host is None or name_of(host) in _NAMES_OF_CLIENTS else "host"
