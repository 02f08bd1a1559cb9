"""Identity of the peer of a unix socket, from the kernel."""

from __future__ import annotations

import os
import socket
import struct

_CREDENTIALS = struct.Struct("iII")


def uid_of_peer(sock: socket.socket) -> int:
    """Return the user id of the process that connected."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(data)
    return int(uid)


def is_owner(sock: socket.socket) -> bool:
    """Whether the peer is the user of this process; no other user is accepted, not even root."""
    return uid_of_peer(sock) == os.geteuid()
