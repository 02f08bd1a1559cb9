"""Connections while the backlog of the daemon's socket is full."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.client.transport import SOCKET_NAME, Connection
from stoker.errors import StokerError


@pytest.fixture
def full_listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A daemon that has accepted no connection, and whose backlog is full."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen(0)
        first.connect(str(tmp_path / SOCKET_NAME))
        yield listener


def test_a_client_waits_while_the_sockets_backlog_is_full(
    full_listener: socket.socket, tmp_path: Path
) -> None:
    connected = threading.Event()

    def connect() -> None:
        Connection(str(tmp_path)).close()
        connected.set()

    thread = threading.Thread(target=connect)
    thread.start()
    assert not connected.wait(0.1)
    full_listener.accept()[0].close()
    thread.join(10)
    assert connected.is_set()


def test_a_full_backlog_is_reported_after_the_timeout(
    full_listener: socket.socket, tmp_path: Path
) -> None:
    with pytest.raises(StokerError, match="has not answered for 0s"):
        Connection(str(tmp_path), timeout_s=0.05)
    full_listener.accept()[0].close()
