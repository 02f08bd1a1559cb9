"""Who is at the other end of a unix socket, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct

_CREDENTIALS = struct.Struct("iII")


def uid_of_peer(sock: socket.socket) -> int:
    """The user who connected."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(data)
    return int(uid)


def is_owner(sock: socket.socket) -> bool:
    """Whether it is the user whose process this is; nobody else gets in, not even root."""
    return uid_of_peer(sock) == os.geteuid()
