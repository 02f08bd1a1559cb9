"""The headers of a request that say who asks, and the checks that all doors share."""

from __future__ import annotations

from stoker.api.access import Scope

# Names that lead to this machine alone, by whatever port: `ssh -L` may use another one.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
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
