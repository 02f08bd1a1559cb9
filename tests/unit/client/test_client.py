"""The client while daemons stop and start; its verbs are tested with the API."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stoker.client.client import Client
from stoker.client.transport import BrokenError
from stoker.core.lifecycle import State
from stoker.wire import JobEvent, Kill, Progress, Selection

if TYPE_CHECKING:
    from unit.client.conftest import Server

Serve = Callable[..., "Server"]
Script = Callable[[socket.socket], None]

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def saying(asked: list[str]) -> Callable[..., Script]:
    """Return a function that makes scripts: read one request, send an answer, close."""
    from unit.client.conftest import read_request

    def make(*pieces: bytes) -> Script:
        def script(connection: socket.socket) -> None:
            head, _body = read_request(connection)
            if head:
                asked.append(head.split()[1].decode())
                connection.sendall(b"".join(pieces))

        return script

    return make


Saying = Callable[..., Script]


def nothing(_connection: socket.socket) -> None:
    """Accept a client that only checks whether a daemon listens."""


def test_wait_goes_on_after_a_restart_of_the_daemon(
    serve: Serve, home: Path, saying: Saying
) -> None:
    one = chunk(b'{"counts":{"running":1},"left":1}\n')
    none = chunk(b'{"counts":{"done":1},"left":0}\n')
    serve(saying(HEAD, b"\r\n", one), nothing, saying(HEAD, b"\r\n", none, END))
    with Client(str(home)) as client:
        assert list(client.wait(Selection(ids="1"))) == [
            Progress(counts={State.RUNNING: 1}, left=1),
            Progress(counts={State.DONE: 1}, left=0),
        ]


def test_a_followed_log_goes_on_after_a_break_and_with_the_next_attempt(
    serve: Serve, home: Path, saying: Saying, asked: list[str]
) -> None:
    headers = b"stoker-job: 7\r\nstoker-attempt: 1\r\nstoker-offset: 100\r\n\r\n"
    missing = b"HTTP/1.1 404 X\r\ncontent-length: 14\r\n\r\n" + b'{"detail":"x"}'
    serve(
        saying(HEAD, headers, chunk(b"abc")),
        nothing,
        saying(HEAD, headers, chunk(b"def"), END),
        saying(HEAD, headers, chunk(b"second attempt"), END),
        saying(missing),
    )
    with Client(str(home)) as client:
        assert list(client.log("name", tail=3, follow=True)) == [b"abc", b"def", b"second attempt"]
    assert asked == [
        "/v1/log?job=name&tail=3&follow=true",
        "/v1/log?job=7&attempt=1&offset=103&follow=true",
        "/v1/log?job=7&attempt=2&offset=0&follow=true",
        "/v1/log?job=7&attempt=3&offset=0&follow=true",
    ]


def test_events_break_when_the_daemon_goes(serve: Serve, home: Path, saying: Saying) -> None:
    event = b'{"event":"job","id":1,"state":"done","attempt":1,"at":0.5}\n'
    # An event may come in two pieces, and two events in one.
    serve(saying(HEAD, b"\r\n", chunk(event + event[:10]), chunk(event[10:])))
    with Client(str(home)) as client:
        events = client.events()
        for _ in range(2):
            assert next(events) == JobEvent(id=1, state=State.DONE, attempt=1, at=0.5)
        with pytest.raises(BrokenError):
            next(events)


def test_a_read_request_is_repeated_after_a_break(
    serve: Serve, home: Path, saying: Saying, asked: list[str]
) -> None:
    page = b'{"jobs":[],"next":null}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)
    serve(saying(), saying(answer))
    with Client(str(home)) as client:
        assert client.ls().jobs == []
    assert asked == ["/v1/ls?limit=100"] * 2


def test_a_changing_request_is_not_repeated(
    serve: Serve, home: Path, saying: Saying, asked: list[str]
) -> None:
    serve(saying())
    with Client(str(home)) as client, pytest.raises(BrokenError):
        client.kill(Kill(ids="1"))
    assert asked == ["/v1/kill"]


def test_a_selection_becomes_a_query(
    serve: Serve, home: Path, saying: Saying, asked: list[str]
) -> None:
    page = b'{"jobs":[],"next":null}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)
    serve(saying(answer))
    selection = Selection(ids="1,5-9", states=[State.DONE, State.LOST], project="a b", all=True)
    with Client(str(home)) as client:
        client.ls(selection, text="lr=0.1", limit=5)
    [target] = asked
    assert target == (
        "/v1/ls?ids=1%2C5-9&states=done&states=lost&project=a%20b&all=true&text=lr%3D0.1"
        "&strict=true&limit=5"
    )
