"""What no well-behaved client sends: it gets a clear answer, and the daemon lives."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from patience import PATIENCE_S
from stoker.api.connection import ServerConnection
from stoker.api.peer_credentials import is_owner, uid_of_peer
from stoker.client.transport import Connection as ClientConnection
from stoker.errors import StokerError, UsageError
from stoker.wire import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.client.client import Client
    from unit.api.api_server import ApiServer

JSON = b"content-type: application/json\r\n"


def read_all(sock: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def talk(api_server: ApiServer, request: bytes) -> tuple[int, Problem]:
    """Send bytes and read a refusal; the connection must end by itself or be ended by its answer."""
    with api_server.raw() as sock:
        sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            piece = sock.recv(65536)
            assert piece, data
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), msgspec.json.decode(body, type=Problem)


def test_what_is_not_http_is_refused(api_server: ApiServer, client: Client) -> None:
    assert talk(api_server, b"\x16\x03\x01 hello\r\n\r\n")[0] == 400
    client.status()


def test_a_body_that_is_not_json_is_refused_with_the_reason(api_server: ApiServer) -> None:
    request = b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\n" + JSON + b"content-length: 3\r\n\r\nabc"
    status, problem = talk(api_server, request)
    assert status == 400
    assert "malformed" in problem.detail


def test_a_body_of_the_wrong_shape_is_refused_with_the_place(api_server: ApiServer) -> None:
    connection = ClientConnection(api_server.home)
    with pytest.raises(UsageError, match=r"\$\.jobs"):
        connection.request("POST", "/v1/add", b'{"request_id": "12345678", "jobs": [], "cwd": "/"}')
    connection.close()


def test_a_gigabyte_is_refused_before_it_is_read(api_server: ApiServer, client: Client) -> None:
    head = (
        b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\n" + JSON + b"content-length: 1073741824\r\n\r\n"
    )
    status, problem = talk(api_server, head)
    assert status == 413
    assert "67108864" in problem.detail
    client.status()


def test_a_client_that_sends_too_much_reads_why_it_is_refused(api_server: ApiServer) -> None:
    connection = ClientConnection(api_server.home)
    with pytest.raises(StokerError, match="67108864"):
        connection.request("POST", "/v1/add", b" " * (64 * 1024 * 1024 + 1))


def test_a_chunked_body_is_counted_while_it_is_read(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.api.body.MAX_BYTES", 1_000_000)
    head = (
        b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\n" + JSON + b"transfer-encoding: chunked\r\n\r\n"
    )
    with api_server.raw() as sock:
        sock.sendall(head)
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with contextlib.suppress(BrokenPipeError):
            for _ in range(100):
                sock.sendall(chunk)
        assert b" 413 " in read_all(sock)


def test_another_content_type_is_refused(api_server: ApiServer) -> None:
    head = b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\ncontent-type: text/plain\r\n"
    request = head + b"content-length: 2\r\n\r\n{}"
    assert talk(api_server, request)[0] == 415


def test_a_body_where_none_belongs_is_refused(api_server: ApiServer) -> None:
    request = b"GET /v1/status HTTP/1.1\r\nhost: stoker\r\ncontent-length: 1073741824\r\n\r\n"
    assert talk(api_server, request)[0] == 400


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("limit=0", "limit"),
        ("limit=1e3", "limit"),
        ("limit=ten", "limit"),
        ("limit=5&limit=6", "twice"),
        ("colour=red", "no parameter 'colour'"),
        ("states=sleeping", "sleeping"),
        ("all=1", "all"),
        ("all=True", "all"),
        ("text=%FF", "utf-8"),
        ("limit", "limit"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    api_server: ApiServer, query: str, reason: str
) -> None:
    connection = ClientConnection(api_server.home)
    with pytest.raises(UsageError, match=reason):
        connection.request("GET", f"/v1/ls?{query}")
    connection.close()


def test_a_head_without_an_end_is_not_read_for_ever(api_server: ApiServer, client: Client) -> None:
    with api_server.raw() as sock:
        sock.sendall(b"GET /v1/status HTTP/1.1\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                sock.sendall(b"x: " + b"y" * 65536 + b"\r\n")
        assert b" 400 " in read_all(sock)
    client.status()


def test_a_hostile_name_comes_back_as_it_was(api_server: ApiServer, client: Client) -> None:
    command = "echo '\x1b]0;gone\x07 \u202e ; rm -rf / \r\n'"
    job = api_server.add(command)
    assert client.show(job).line == command


@pytest.fixture
def hasty_api_server(make_api_server: Callable[..., ApiServer]) -> ApiServer:
    class Hasty(ServerConnection):
        head_timeout_s = 0.1

    return make_api_server(connection=Hasty)


@pytest.mark.parametrize(
    "begun", [b"", b"GET /v1/sta", b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\n"]
)
def test_a_connection_that_says_nothing_more_is_closed(
    hasty_api_server: ApiServer, begun: bytes
) -> None:
    with hasty_api_server.raw() as sock:
        sock.sendall(begun)
        assert read_all(sock) == b""


def test_half_open_connections_harm_nobody(api_server: ApiServer, client: Client) -> None:
    with api_server.raw() as one, api_server.raw() as two:
        one.sendall(b"POST /v1/add HTTP/1.1\r\n" + JSON + b"content-length: 100\r\n\r\n{")
        two.shutdown(socket.SHUT_WR)
        assert client.status().pid == os.getpid()


def test_a_body_that_does_not_come_is_given_up(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.api.body.TIMEOUT_S", 0.1)
    head = b"POST /v1/add HTTP/1.1\r\nhost: stoker\r\n" + JSON + b"content-length: 100\r\n\r\n{"
    assert talk(api_server, head)[0] == 408


def test_a_stream_ends_with_its_listener(api_server: ApiServer, client: Client) -> None:
    listeners = api_server.context.events._listeners
    with api_server.raw() as sock:
        sock.sendall(b"GET /v1/events HTTP/1.1\r\nhost: stoker\r\n\r\n")
        api_server.until(lambda: len(listeners) == 1)
    api_server.until(lambda: not listeners)


def test_another_user_is_refused_before_a_word(make_api_server: Callable[..., ApiServer]) -> None:
    class Closed(ServerConnection):
        is_peer_allowed = staticmethod(lambda _sock: False)

    api_server = make_api_server(connection=Closed)
    with api_server.raw() as sock:
        with contextlib.suppress(BrokenPipeError):
            sock.sendall(b"GET /v1/status HTTP/1.1\r\nhost: stoker\r\n\r\n")
        assert read_all(sock) == b""


_AS_ANOTHER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
os.fchdir(int(sys.argv[1]))
sock.connect("stoker.sock")
try:
    sock.sendall(b"GET /v1/status HTTP/1.1\\r\\nhost: s\\r\\n\\r\\n")
    sys.stdout.buffer.write(sock.recv(100))
except (BrokenPipeError, ConnectionResetError):
    pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_real_other_user_is_refused_although_file_and_folder_let_him_in(
    api_server: ApiServer,
) -> None:
    os.chmod(api_server.home, 0o777)
    os.chmod(f"{api_server.home}/stoker.sock", 0o777)
    folder = os.open(api_server.home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        said = subprocess.run(
            [sys.executable, "-I", "-c", _AS_ANOTHER, str(folder)],
            pass_fds=[folder],
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        )
    finally:
        os.close(folder)
    assert said.stdout == b""


def test_the_kernel_names_the_peer() -> None:
    one, two = socket.socketpair()
    with one, two:
        assert uid_of_peer(one) == os.geteuid()
        assert is_owner(two)
