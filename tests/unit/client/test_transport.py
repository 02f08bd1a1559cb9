from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stoker.client.transport import BrokenError, Connection, NoDaemonError, make_error, quote
from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError

if TYPE_CHECKING:
    import socket

    from unit.client.conftest import Server

Serve = Callable[..., "Server"]


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """A script that answers one request after another, over one connection."""
    from unit.client.conftest import read_request

    def script(connection: socket.socket) -> None:
        for answer in answers:
            read_request(connection)
            connection.sendall(answer)

    return script


def plain(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def test_requests_follow_each_other_over_one_connection(serve: Serve, home: Path) -> None:
    serve(answering(plain(b"one"), plain(b"two")))
    with Connection(str(home)) as connection:
        assert connection.request("GET", "/1").body == b"one"
        assert connection.is_usable()
        assert connection.request("POST", "/2", b"{}").body == b"two"


def test_a_connection_that_the_daemon_closed_is_not_usable(serve: Serve, home: Path) -> None:
    serve(answering(plain(b"one")))
    with Connection(str(home)) as connection:
        connection.request("GET", "/1")
        while connection.is_usable():
            pass


def test_a_chunked_answer_is_joined(serve: Serve, home: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    serve(answering(head + b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"))
    with Connection(str(home)) as connection:
        assert connection.request("GET", "/").body == b"abc0123456789"


def test_a_stream_yields_its_chunks_until_it_breaks(serve: Serve, home: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: b\r\n\r\n"
    serve(answering(head + b"3\r\nabc\r\n5\r\nde"))
    with Connection(str(home)) as connection:
        headers, chunks = connection.stream("/")
        assert headers["x-a"] == "b"
        assert next(chunks) == b"abc"
        with pytest.raises(BrokenError):
            next(chunks)


def test_a_truncated_answer_is_a_broken_connection(serve: Serve, home: Path) -> None:
    serve(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"))
    with pytest.raises(BrokenError, match=r"daemon\.log"):
        Connection(str(home)).request("GET", "/")


def test_an_answer_that_is_not_http_is_a_broken_connection(serve: Serve, home: Path) -> None:
    serve(answering(b"hello\r\n\r\n"))
    with pytest.raises(BrokenError):
        Connection(str(home)).request("GET", "/")


def test_a_silent_daemon_is_a_timeout_error(serve: Serve, home: Path) -> None:
    serve(lambda connection: connection.recv(1 << 20) and connection.recv(1))
    with pytest.raises(StokerError, match="has not answered for 0s"):
        Connection(str(home), timeout_s=0.05).request("GET", "/")


def test_the_error_without_a_daemon_says_whether_it_died(serve: Serve, home: Path) -> None:
    with pytest.raises(NoDaemonError) as never:
        Connection(str(home))
    serve(answering()).close()
    with pytest.raises(NoDaemonError) as died:
        Connection(str(home))
    assert (never.value.died, died.value.died) == (False, True)


def test_a_home_with_a_very_long_path_is_reached(tmp_path: Path) -> None:
    from unit.client.conftest import Server

    home = tmp_path / ("x" * 120)
    home.mkdir()
    server = Server(home, answering(plain(b"far")))
    with Connection(str(home)) as connection:
        assert connection.request("GET", "/").body == b"far"
    server.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, UsageError), (404, NotFoundError), (409, ConflictError), (503, StokerError)],
)
def test_a_problem_document_becomes_its_error(status: int, kind: type[StokerError]) -> None:
    error = make_error(status, b'{"detail": "so it is", "status": 1}')
    assert type(error) is kind
    assert str(error) == "so it is"


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b"oops"])
def test_a_refusal_without_a_document_becomes_an_error(body: bytes) -> None:
    assert "418" in str(make_error(418, body))


def test_a_query_carries_any_text() -> None:
    assert quote("a b/ü&=%~") == "a%20b%2F%C3%BC%26%3D%25~"
    assert quote(os.fsdecode(b"\xff")) == "%FF"


def test_the_imports_of_add_are_cheap() -> None:
    program = (
        "import sys; before = set(sys.modules); import stoker.client.submit, stoker.client.fast_json;"
        "print(*sorted(set(sys.modules) - before))"
    )
    words = [sys.executable, "-c", program]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if not name.startswith("stoker")] == ["__future__", "_socket"]
