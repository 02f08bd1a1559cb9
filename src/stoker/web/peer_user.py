"""Finds the user of the process at the other end of a local TCP connection, by netlink sock_diag."""

from __future__ import annotations

import contextlib
import socket
import struct

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI")
_PORTS_AND_ADDRESSES = struct.Struct("!HH16s16s")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_UID = struct.Struct("=I")
_UID_AT = _HEAD.size + 4 + _PORTS_AND_ADDRESSES.size + _INTERFACE_AND_COOKIE.size + 12
_MAX_ANSWER_BYTES = 4096


def user_of_peer(sock: socket.socket) -> int | None:
    """Return the uid of the peer's socket; None if it is on another machine or unknown."""
    with contextlib.suppress(OSError, struct.error):
        here, there = sock.getsockname(), sock.getpeername()
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
        ) as netlink:
            netlink.setblocking(False)  # the kernel answers before `send` returns
            netlink.send(_make_request(sock.family, there, here))
            return _read_uid(netlink.recv(_MAX_ANSWER_BYTES))
    return None


def _make_request(family: int, source: tuple[str, int], target: tuple[str, int]) -> bytes:
    """Return the request for the socket that is bound to `source` and connected to `target`."""
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    body += _PORTS_AND_ADDRESSES.pack(
        source[1],
        target[1],
        socket.inet_pton(family, source[0]),
        socket.inet_pton(family, target[0]),
    )
    body += _INTERFACE_AND_COOKIE.pack(0, _NO_COOKIE, _NO_COOKIE)
    size = _HEAD.size + len(body)
    return _HEAD.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + body


def _read_uid(answer: bytes) -> int | None:
    """Return the uid in an answer; None if the answer says that there is no such socket."""
    if _HEAD.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return int(_UID.unpack_from(answer, _UID_AT)[0])
