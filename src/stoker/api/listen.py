"""The daemon's own socket: nobody but its owner can connect, from the moment it exists."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from stoker.errors import StokerError

NAME = "stoker.sock"

_MAX_PATH_BYTES = 107
_BACKLOG = 1024


def listen(home: str) -> socket.socket:
    """Listen in a home whose lock the caller holds: a socket left there by a dead daemon is replaced.

    The folder lets nobody else in, and the file has mode 0600 whatever the umask, even for the
    moment before it is set: connecting needs the folder.
    """
    _close_folder(home)
    path = os.path.join(home, NAME)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _bind(sock, path)
        os.chmod(path, 0o600)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise StokerError(f"cannot listen at {path}: {error.strerror}") from error
    return sock


def unlink(home: str) -> None:
    """Take the socket's file away, so that the next client knows at once that nobody listens."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(home, NAME))


def _close_folder(home: str) -> None:
    if stat.S_IMODE(os.stat(home).st_mode) & 0o077:
        os.chmod(home, 0o700)


def _bind(sock: socket.socket, path: str) -> None:
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        sock.bind(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(f"/proc/self/fd/{folder}/{NAME}")
    finally:
        os.close(folder)
