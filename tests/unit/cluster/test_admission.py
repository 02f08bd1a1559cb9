"""The exchange of a join token for Ray's token, over real sockets, with hostile peers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.daemon_fixture import free_port
from patience import until
from stoker.cluster import admission, authority, settings, tls
from stoker.cluster.admission import AdmissionServer, exchange_join_token
from stoker.cluster.join_tokens import (
    JoinToken,
    issue_join_token,
    newest_join_token,
    parse_join_token,
    revoke_join_tokens,
)
from stoker.errors import StokerError, UsageError

RAY_TOKEN = "5" * 64
NOW = 1000.0
HOST = "127.0.0.1"


class Head:
    """A head that lets boxes in at a loopback port."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.port = int(free_port())
        self.log: list[str] = []
        settings.save_token(home, RAY_TOKEN)
        self._server = AdmissionServer(home, HOST, self.port, self.log.append)
        self._server.start()
        until(self.answers, "the head listens")

    def answers(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((HOST, self.port)).close()
            return True
        return False

    def issue(self, expires_s: float | None = None) -> JoinToken:
        token = parse_join_token(issue_join_token(self.home, expires_s, NOW).text)
        assert token is not None
        return token

    def exchange(self, token: JoinToken) -> str:
        return exchange_join_token(HOST, self.port, token).token

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(str(tmp_path))
    yield head
    head.close()


def test_a_join_token_gives_the_token_of_ray(head: Head) -> None:
    assert head.exchange(head.issue()) == RAY_TOKEN


def test_a_head_with_an_authority_signs_for_the_address_of_the_box(
    head: Head, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority.make_authority(head.home, HOST)
    key, request = authority.make_request()
    made = exchange_join_token(HOST, head.port, head.issue(), request)

    assert made.certificate is not None
    assert made.authority is not None
    assert made.authority == authority.find_authority(head.home)
    home = str(tmp_path_factory.mktemp("box"))
    kept = authority.keep_certificate(home, key, made.certificate, made.authority)
    named = tls.tls_environment(kept)
    assert tls.find_certificates(named, HOST) == kept
    with pytest.raises(UsageError, match="would not accept"):
        tls.find_certificates(named, "127.0.0.2")
    assert authority.find_authority(home) is None


def test_an_expired_and_a_revoked_token_give_the_reason(head: Head) -> None:
    expired, revoked = head.issue(60.0), head.issue()
    with pytest.raises(StokerError, match="has expired: stoker cluster token"):
        head.exchange(expired)
    assert revoke_join_tokens(head.home, NOW) == 2
    with pytest.raises(StokerError, match="was revoked"):
        head.exchange(revoked)


def test_a_box_that_knows_only_the_id_of_a_token_gets_nothing(head: Head) -> None:
    known = head.issue()
    with pytest.raises(StokerError, match="does not know this join token"):
        head.exchange(JoinToken(id=known.id, secret="0" * 64, expires_at=None))


def test_a_process_that_took_the_port_of_the_head_learns_nothing(head: Head) -> None:
    token = head.issue()
    heard = b""
    with socket.create_server((HOST, 0)) as listener:

        def impersonate() -> None:
            nonlocal heard
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as lines:
                heard = lines.readline()
                lines.write(json.dumps({"nonce": "0" * 64, "proof": "0" * 64}).encode() + b"\n")
                lines.flush()
                heard += lines.read()

        thread = threading.Thread(target=impersonate)
        thread.start()
        with pytest.raises(StokerError, match="and was told nothing"):
            exchange_join_token(HOST, listener.getsockname()[1], token)
        thread.join()
    assert set(json.loads(heard)) == {"join", "nonce"}
    assert token.secret.encode() not in heard


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"[" * 900 + b"\n",
        b"9" * 900 + b"\n",
        b"x" * 50000,
        b'{"join": 1, "nonce": "00"}\n',
        b'{"join": "../token", "nonce": "\xff"}\n',
        b'{"join": "ab", "nonce": "' + b"0" * 62 + b'"}\n',
        b"\x16\x03\x01\n",
        b'{"join": "\\ud800", "nonce": "' + b"0" * 64 + b'"}\n',
    ],
)
def test_hostile_input_ends_its_own_connection_only(head: Head, data: bytes) -> None:
    with socket.create_connection((HOST, head.port)) as connection:
        connection.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    assert head.exchange(head.issue()) == RAY_TOKEN
    assert head.log == []


def test_idle_connections_of_one_address_do_not_keep_others_out(head: Head) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3 * admission._MAX_PER_ADDRESS):
            idle = socket.create_connection((HOST, head.port), source_address=("127.0.0.9", 0))
            stack.enter_context(idle)
        assert head.exchange(head.issue()) == RAY_TOKEN


def test_a_taken_port_is_logged_once_and_used_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_RETRY_S", 0.01)
    log: list[str] = []
    with socket.create_server((HOST, 0)) as squatter:
        port = squatter.getsockname()[1]
        server = AdmissionServer(str(tmp_path), HOST, port, log.append)
        server.start()
        until(lambda: log, "the reason is logged")
    settings.save_token(str(tmp_path), RAY_TOKEN)
    token = issue_join_token(str(tmp_path), None, NOW)

    def joins() -> bool:
        with contextlib.suppress(StokerError):
            return exchange_join_token(HOST, port, token).token == RAY_TOKEN
        return False

    until(joins, "the head listens")
    server.close()
    assert len(log) == 1
    assert f"cannot let boxes join at {HOST}:{port}" in log[0]


def test_the_newest_valid_token_is_found(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert newest_join_token(home, NOW) is None
    lasting = issue_join_token(home, None, NOW)
    short = issue_join_token(home, 10.0, NOW)
    assert newest_join_token(home, NOW + 9) == short
    assert newest_join_token(home, NOW + 10) == lasting
    assert parse_join_token("a" * 64) is None
