from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from patience import PATIENCE_S
from stoker.client import submit as module
from stoker.client.submit import begin, submit
from stoker.client.transport import NoDaemonError
from stoker.errors import StokerError, UsageError

if TYPE_CHECKING:
    from unit.client.conftest import FakeDaemon, Server

Serve = Callable[..., "Server"]

ADDED = b'{"first":3,"last":4,"repeated":false,"notice":null}'


@pytest.fixture
def asked() -> list[dict[str, object]]:
    return []


@pytest.fixture
def hang_up(asked: list[dict[str, object]]) -> Callable[[socket.socket], None]:
    from unit.client.conftest import read_request

    def script(connection: socket.socket) -> None:
        asked.append(msgspec.json.decode(read_request(connection)[1]))

    return script


@pytest.fixture
def answer(asked: list[dict[str, object]]) -> Callable[[socket.socket], None]:
    from unit.client.conftest import read_request

    def script(connection: socket.socket) -> None:
        asked.append(msgspec.json.decode(read_request(connection)[1]))
        connection.sendall(b"HTTP/1.1 201 X\r\ncontent-length: %d\r\n\r\n%s" % (len(ADDED), ADDED))

    return script


Script = Callable[[socket.socket], None]


def test_every_submission_gets_its_own_request_id(
    serve: Serve, home: Path, answer: Script, asked: list[dict[str, object]]
) -> None:
    serve(answer)
    assert submit(str(home), {"jobs": []})["first"] == 3
    submit(str(home), {"jobs": []})
    first, second = (str(each["request_id"]) for each in asked)
    assert len(first) == 32
    assert first != second


def test_a_broken_submission_is_sent_again_with_the_same_id(
    serve: Serve, home: Path, answer: Script, hang_up: Script, asked: list[dict[str, object]]
) -> None:
    serve(hang_up, hang_up, answer)
    assert submit(str(home), {"jobs": []})["last"] == 4
    assert len(asked) == 3
    assert len({each["request_id"] for each in asked}) == 1


def test_begin_sends_before_it_waits_for_the_answer(
    serve: Serve, home: Path, answer: Script, hang_up: Script, asked: list[dict[str, object]]
) -> None:
    read = threading.Event()

    def read_and_hang_up(connection: socket.socket) -> None:
        hang_up(connection)
        read.set()

    serve(read_and_hang_up, answer)
    wait = begin(str(home), b'{"request_id":"mine"}', "mine")
    assert read.wait(PATIENCE_S)
    assert wait() == ADDED
    assert [each["request_id"] for each in asked] == ["mine", "mine"]


def test_a_daemon_that_died_during_a_submission_is_started_again(
    serve: Serve,
    home: Path,
    hang_up: Script,
    fake_daemon: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker.client.transport.TIMEOUT_S", 0.2)
    servers: list[Server] = []

    def die(connection: socket.socket) -> None:
        hang_up(connection)
        servers[0].die()

    servers.append(serve(die))
    # The one that is started in its place takes connections, and does not answer.
    with pytest.raises(StokerError, match="has not answered"):
        submit(str(home), {"jobs": []})
    assert len(fake_daemon.pids()) == 1


def test_a_daemon_that_stays_away_is_a_clear_error(
    serve: Serve, home: Path, hang_up: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_TIMEOUT_S", 0.3)
    serve(hang_up)
    with pytest.raises(StokerError, match=r"may or may not .* stoker ls .* once"):
        submit(str(home), {"jobs": []})


def test_a_refusal_is_final(serve: Serve, home: Path) -> None:
    body = b'{"detail":"no such folder"}'
    calls: list[int] = []

    def refuse(connection: socket.socket) -> None:
        calls.append(1)
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    serve(refuse)
    with pytest.raises(UsageError, match="no such folder"):
        submit(str(home), {"jobs": []})
    assert len(calls) == 1


def test_no_daemon_is_started_without_start(home: Path) -> None:
    with pytest.raises(NoDaemonError):
        begin(str(home), b"{}", "an id", start=False)()
