"""The certificate authority that Stoker makes for a cluster."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stoker.cli import credentials
from stoker.cluster import authority, ray_survey, settings, tls
from stoker.cluster.admission import Pass
from stoker.cluster.join_tokens import JoinToken
from stoker.errors import StokerError

TOKEN = "5" * 64
JOIN_TOKEN = JoinToken(id="0" * 12, secret="1" * 64, expires_at=None)


def without_openssl(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder))


def test_a_box_accepts_its_own_certificate_at_its_own_address_only(tmp_path: Path) -> None:
    home = str(tmp_path)
    made = authority.make_authority(home, "10.0.0.1")

    assert tls.find_certificates(tls.tls_environment(made), "10.0.0.1") == made
    with pytest.raises(StokerError, match="would not accept"):
        tls.find_certificates(tls.tls_environment(made), "10.0.0.2")
    for name in os.listdir(tmp_path / "cluster"):
        assert stat.S_IMODE(os.stat(tmp_path / "cluster" / name).st_mode) == 0o600, name
    settings.forget_settings(home)
    assert os.listdir(tmp_path / "cluster") == []


def test_a_head_on_the_loopback_address_has_a_certificate_for_the_one_that_ray_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_survey, "outward_address", lambda: "10.0.0.1")
    made = credentials.make_credentials(str(tmp_path), "127.0.0.1", use_tls=True).certificates
    for address in ("127.0.0.1", "10.0.0.1"):
        assert tls.find_certificates(tls.tls_environment(made), address) == made


def test_an_authority_refuses_invalid_requests_and_addresses(
    tmp_path: Path,
) -> None:
    home = str(tmp_path)
    authority.make_authority(home, "10.0.0.1")
    _key, request = authority.make_request()

    with pytest.raises(StokerError, match="openssl cannot make a certificate"):
        authority.sign_request(home, "no request", "10.0.0.2")
    with pytest.raises(ValueError, match="does not appear to be"):
        authority.sign_request(home, request, "10.0.0.2,DNS:other")


def test_a_missing_openssl_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_openssl(monkeypatch, tmp_path)
    with pytest.raises(StokerError, match=r"apt-get install openssl.*--no-tls"):
        credentials.make_credentials(str(tmp_path), "10.0.0.1", use_tls=True)
    made = credentials.make_credentials(str(tmp_path), "10.0.0.1", use_tls=False)
    assert made.certificates is None


def test_a_box_without_openssl_joins_only_a_cluster_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_openssl(monkeypatch, tmp_path)
    home = str(tmp_path)
    given = [Pass(token=TOKEN), Pass(token=TOKEN, authority="PEM")]
    monkeypatch.setattr(credentials, "exchange_join_token", lambda *_: given.pop(0))
    monkeypatch.setenv("STOKER_CLUSTER_TOKEN", JOIN_TOKEN.text)

    with credentials.find_credentials(home, "127.0.0.1", 7866) as found:
        assert found == (TOKEN, None)
    with (
        pytest.raises(StokerError, match="openssl is missing"),
        credentials.find_credentials(home, "127.0.0.1", 7866),
    ):
        raise AssertionError
