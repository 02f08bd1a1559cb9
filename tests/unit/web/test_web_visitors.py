"""How many may wait at the page without having proved themselves, and whose they are."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

from stoker.web.peer_user import user_of_peer
from stoker.web.visitors import Limits, Visitors, keep_visit, let_in, limits_for


class Line:
    """A transport over a real connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.is_open = True

    def get_extra_info(self, _name: str) -> socket.socket:
        return self._sock

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_names_the_user_of_a_peer(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        listening = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {address} here: {error}")
    with listening, socket.create_connection(listening.getsockname()[:2]):
        accepted, _address = listening.accept()
        with accepted:
            assert user_of_peer(accepted) == os.geteuid()


def test_the_user_of_other_sockets_is_unknown() -> None:
    with socket.socket() as sock:
        assert user_of_peer(sock) is None


def admit(visitors: Visitors, many: int, sock: socket.socket) -> list[Line]:
    lines: Any = [Line(sock) for _ in range(many)]
    for line in lines:
        keep_visit({}, visitors.admit(line))
    return list(lines)


def test_at_the_limit_the_oldest_connection_is_closed() -> None:
    visitors = Visitors(Limits(strangers=2, own=3, tabs=1))
    with socket.socket() as strange, socket.socket(socket.AF_UNIX) as own:
        strangers = admit(visitors, 4, strange)
        owns = admit(visitors, 4, own)
    assert [line.is_open for line in strangers] == [False, False, True, True]
    assert [line.is_open for line in owns] == [False, True, True, True]


def test_authenticated_and_closed_connections_do_not_count() -> None:
    visitors = Visitors(Limits(strangers=2, own=2, tabs=1))
    with socket.socket() as sock:
        first, second, third, fourth = (Line(sock) for _ in range(4))
        state: dict[str, Any] = {}
        keep_visit(state, visitors.admit(first))  # type: ignore[arg-type]
        let_in({"state": state})
        for line in (second, third):
            visitors.admit(line)  # type: ignore[arg-type]
        second.is_open = False
        visitors.admit(fourth)  # type: ignore[arg-type]
    assert [first.is_open, third.is_open, fourth.is_open] == [True, True, True]
    let_in({"state": {}})


@pytest.mark.parametrize("descriptors", [64, 256, 1024, 20_000, 1 << 30])
def test_the_page_never_gets_half_of_the_descriptors(descriptors: int) -> None:
    limits = limits_for(descriptors)
    assert min(limits) >= 4
    assert sum(limits) <= min(512, descriptors / 2)
