"""The page's TCP port: the default port of a user, and who uses a port that is taken."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from stoker.accounts import name_of
from stoker.errors import StokerError

# Each user has a default port. The range is below the ports that the kernel gives to outgoing connections,
# so only a program that chose such a port can use it.
FIRST_PORT = 20000
PORTS = 10000
_BACKLOG = 128
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"


def default_port(uid: int | None = None) -> int:
    """Return the default port of a user: 20000 plus the last four digits of the uid."""
    return FIRST_PORT + (os.getuid() if uid is None else uid) % PORTS


class PortSocket(socket.socket):
    """A socket that ignores the event loop's backlog."""

    def listen(self, _backlog: int = 0, /) -> None:
        """Listen with our own backlog."""
        super().listen(_BACKLOG)


def resolve(host: str) -> str:
    """Return the address that a host name stands for; an address is returned as it is."""
    if ":" in host or not host:
        return host
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise StokerError(f"cannot find the address of {host}: {error}") from None


def bind_port(host: str, *choices: int) -> socket.socket:
    """Listen at the first free port of these; 0 means any."""
    reason: Exception | None = None
    for choice in choices:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = PortSocket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, choice))
            sock.listen()
            sock.setblocking(False)
        except (OSError, OverflowError) as error:
            sock.close()
            reason = reason or error
        else:
            return sock
    raise StokerError(f"cannot listen at {host}:{choices[0]}: {_explain(reason, choices[0])}")


def holder_of(port: int) -> str | None:
    """Return the user whose process listens at a local port; None if unknown."""
    for table in _TABLES:
        with contextlib.suppress(OSError), open(table, encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                    return name_of(int(words[7]))
    return None


def _explain(reason: Exception | None, port: int) -> str:
    if isinstance(reason, OSError) and reason.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        whose = "" if holder is None else f" of user {holder}"
        return f"a process{whose} listens there already"
    return str(reason)
