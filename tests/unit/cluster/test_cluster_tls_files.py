"""Certificates that a user names are checked before a box uses them."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from cluster.certificates import Authority
from stoker.cluster import tls
from stoker.cluster.ray_command import ray_environment
from stoker.errors import StokerError, UsageError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_ray_gets_the_certificates_that_a_box_joined_with(
    authority: Authority, tmp_path: Path
) -> None:
    named = authority.environment("127.0.0.1")
    home = str(tmp_path)
    tls.save_certificates(home, tls.find_certificates(named, "127.0.0.1"))

    assert named.items() <= ray_environment(home, {"RAY_USE_TLS": "0"}).items()
    assert stat.S_IMODE(os.stat(tmp_path / "cluster" / "tls.json").st_mode) == 0o600
    tls.save_certificates(home, None)
    made = ray_environment(home, named)
    assert made["RAY_USE_TLS"] == "0"
    assert "RAY_TLS_SERVER_KEY" not in made


def test_certificates_that_cannot_be_used_are_refused_with_the_reason(
    authority: Authority, tmp_path: Path
) -> None:
    good = authority.environment("127.0.0.1")
    other = Authority(tmp_path, "other").environment("127.0.0.1")
    open_key = tmp_path / "open.key"
    open_key.write_bytes(Path(good["RAY_TLS_SERVER_KEY"]).read_bytes())
    open_key.chmod(0o644)
    for changed, address, reason in (
        ({"RAY_USE_TLS": "maybe"}, "127.0.0.1", "must be 1 or 0, not 'maybe'"),
        ({"RAY_TLS_CA_CERT": ""}, "127.0.0.1", "needs RAY_TLS_CA_CERT too"),
        ({"RAY_TLS_SERVER_KEY": "/no/such"}, "127.0.0.1", "cannot read the key /no/such"),
        ({"RAY_TLS_SERVER_CERT": "/no/such"}, "127.0.0.1", "No such file"),
        ({"RAY_TLS_SERVER_KEY": str(open_key)}, "127.0.0.1", "chmod 600"),
        (
            {"RAY_TLS_SERVER_KEY": other["RAY_TLS_SERVER_KEY"]},
            "127.0.0.1",
            "KEY_VALUES_MISMATCH",
        ),
        ({"RAY_TLS_CA_CERT": other["RAY_TLS_CA_CERT"]}, "127.0.0.1", "would not accept"),
        ({}, "10.9.9.9", "would not accept .* for 10.9.9.9"),
    ):
        with pytest.raises(UsageError, match=reason):
            tls.find_certificates({**good, **changed}, address)
    assert tls.find_certificates({**good, "RAY_USE_TLS": "0"}, "127.0.0.1") is None


def test_a_server_that_trusts_another_authority_is_told_from_one_that_accepts_us(
    authority: Authority, tmp_path: Path
) -> None:
    good = authority.environment("127.0.0.1")
    own = tls.find_certificates(good, "127.0.0.1")
    assert own is not None
    other = Authority(tmp_path, "other")
    for trusted, reason in ((good["RAY_TLS_CA_CERT"], None), (str(other.certificate), "ALERT")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(own.cert, own.key)
        context.load_verify_locations(trusted)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=_accept_once, args=(listener, context))
            server.start()
            port = listener.getsockname()[1]
            if reason is None:
                tls.check_peer("127.0.0.1", port, own)
            else:
                with pytest.raises(StokerError, match=f"does not accept the certificate.*{reason}"):
                    tls.check_peer("127.0.0.1", port, own)
            server.join()


def _accept_once(listener: socket.socket, context: ssl.SSLContext) -> None:
    plain, _ = listener.accept()
    try:
        with context.wrap_socket(plain, server_side=True) as connection:
            connection.sendall(b"x")
    except OSError:
        plain.close()
