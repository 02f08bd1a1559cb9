"""Unix sockets for one user alone, at paths of any length."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAX_PATH_BYTES = 107


class Peer(NamedTuple):
    """The process at the other end."""

    pid: int
    uid: int


def listen(path: str) -> socket.socket:
    """Listen at a path, and replace a file there. Only this user may connect."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    earlier = os.umask(0o177)
    try:
        with _short(path) as address:
            listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(earlier)
    return listener


def connect(path: str) -> socket.socket:
    """Connect to a path; raises OSError if no process listens there."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as address:
            client.connect(address)
    except OSError:
        client.close()
        raise
    return client


def set_send_timeout(connection: socket.socket, timeout_s: int) -> None:
    """Limit the time of a send; a receive has no limit."""
    seconds = struct.pack("@ll", timeout_s, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end, according to the kernel."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return Peer(pid, uid)


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """Return a short name for a path that is too long for the kernel."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
