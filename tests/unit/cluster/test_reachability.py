"""Proof that the head and a joining box reach each other's ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from patience import until
from stoker.cluster import admission, settings
from stoker.cluster.admission import AdmissionServer
from stoker.cluster.reachability import check_reachability, try_ports
from stoker.cluster.settings import ClusterSettings, choose_first_port
from stoker.errors import StokerError

HOST = "127.0.0.1"
TOKEN = "5" * 64


class Head:
    """A head whose Ray listens at its ports."""

    def __init__(self, home: str, sockets: ExitStack) -> None:
        # Two blocks for Ray: the head's, and the one of the box that joins.
        self.port = choose_first_port(21000, is_fixed=False)
        self.first_port = choose_first_port(self.port + 16, is_fixed=False)
        self.box_port = choose_first_port(self.first_port + 16, is_fixed=False)
        known = ClusterSettings(
            role="head", address=HOST, port=self.port, own_address=HOST, first_port=self.first_port
        )
        settings.save_settings(home, known)
        settings.save_token(home, TOKEN)
        self.listeners = [
            sockets.enter_context(socket.create_server((HOST, self.first_port + at)))
            for at in range(2)
        ]
        self._server = AdmissionServer(home, HOST, self.join_port, print)
        self._server.start()
        until(lambda: try_ports(HOST, [self.join_port]), "the head listens")

    @property
    def join_port(self) -> int:
        return settings.join_port(self.port)

    def check(self, own_address: str = HOST, token: str = TOKEN) -> None:
        head = HOST, self.port
        check_reachability(head, self.join_port, token, own_address, self.box_port)

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with ExitStack() as sockets:
        head = Head(str(tmp_path), sockets)
        yield head
        head.close()


def test_a_box_that_is_reached_and_reaches_the_head_may_join(head: Head) -> None:
    head.check()


def test_a_box_behind_a_firewall_is_told_which_ports_to_open(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "try_ports", lambda _address, ports: ports[:1])
    first, last = head.box_port, head.box_port + 15
    with pytest.raises(StokerError) as raised:
        head.check()
    assert str(raised.value) == (
        f"the head cannot reach this box at {HOST}:{first + 1}, {HOST}:{last}: let its firewall pass TCP"
        f" from {HOST} to {HOST}, ports {first}-{last}"
    )


def test_a_head_behind_a_firewall_is_told_which_ports_to_open(head: Head) -> None:
    head.listeners[1].close()
    with pytest.raises(StokerError) as raised:
        head.check()
    assert str(raised.value) == (
        f"this box cannot reach the head at {HOST}:{head.first_port + 1}: let its firewall pass TCP"
        f" from {HOST} to {HOST}, ports {head.port}-{head.first_port + 15}"
    )


def test_a_box_behind_nat_is_told_so(head: Head) -> None:
    with pytest.raises(StokerError, match=r"sees this box at 127\.0\.0\.1, and its own address"):
        head.check(own_address="127.0.0.2")


def test_only_a_member_makes_the_head_connect(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def note(address: str, _ports: list[int]) -> list[int]:
        tried.append(address)
        return []

    monkeypatch.setattr(admission, "try_ports", note)
    head.check(token="6" * 64)  # as with a head that does not know the question
    assert tried == []
    with pytest.raises(StokerError):
        head.check()
    assert tried == [HOST]


def test_the_head_connects_only_to_the_box_that_asks(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def note(address: str, ports: list[int]) -> list[int]:
        tried.append(address)
        return ports

    monkeypatch.setattr(admission, "try_ports", note)
    with pytest.raises(StokerError):
        head.check(own_address="127.0.0.3")
    assert tried == [HOST]
