from __future__ import annotations

import platform
import socket
import stat
from pathlib import Path

import pytest

from stoker import __version__
from stoker.cluster import ray_survey
from stoker.cluster.protocol import PROTOCOL
from stoker.cluster.ray_survey import Member, RaySurvey
from stoker.errors import StokerError


def cluster(
    ray: str = "2.60.0",
    python: str = platform.python_version(),
    stoker: str = __version__,
    protocol: int = PROTOCOL,
) -> RaySurvey:
    labels = {"stoker-version": stoker, "stoker-protocol": str(protocol)}
    head = Member(address="10.0.0.1", is_head=True, alive=True, labels=labels)
    return RaySurvey(ray=ray, python=python, nodes=[head])


@pytest.fixture(autouse=True)
def ray_2_60(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_survey, "version", lambda _: "2.60.0")


def test_a_missing_ray_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(StokerError, match=r"pip install 'stoker\[ray\]'"):
        ray_survey.require_ray()


def test_an_old_ray_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr(ray_survey, "version", lambda _: "2.9.3")

    with pytest.raises(StokerError, match=r"2\.9\.3 is too old"):
        ray_survey.require_ray()


def test_boxes_with_equal_versions_are_accepted() -> None:
    ray_survey.check_versions(cluster())
    major, minor, _ = platform.python_version_tuple()
    ray_survey.check_versions(cluster(python=f"{major}.{minor}.99"))


def test_a_box_with_another_version_joins_if_the_messages_differ_by_one_version_at_most() -> None:
    for protocol in (PROTOCOL - 1, PROTOCOL, PROTOCOL + 1):
        ray_survey.check_versions(cluster(stoker="9.9", protocol=protocol))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            cluster(ray="2.61.0"),
            r"Ray 2\.61\.0 and this box Ray 2\.60\.0.*pip install ray==2\.61\.0",
        ),
        (cluster(python="3.2.1"), r"Python 3\.2 and this box"),
        (
            cluster(stoker="9.9", protocol=PROTOCOL + 2),
            r"Stoker 9\.9 and this one.*do not understand each other",
        ),
    ],
)
def test_a_box_with_another_version_is_refused_with_the_reason(
    found: RaySurvey, reason: str
) -> None:
    with pytest.raises(StokerError, match=reason):
        ray_survey.check_versions(found)


def test_an_address_without_a_server_is_named() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(StokerError, match=rf"no cluster answers at 127\.0\.0\.1:{port}"):
            ray_survey.reach("127.0.0.1", port)


def test_a_head_needs_a_free_port_and_an_address_of_this_box() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(StokerError, match=r"in use.*--port"):
            ray_survey.check_place("127.0.0.1", sock.getsockname()[1])
    with pytest.raises(StokerError, match="not an address of this box"):
        ray_survey.check_place("192.0.2.77", 7866)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"state": "open"}, "has no authentication"),
        ({"state": "refused"}, "token is not that of the cluster"),
        ({"state": "silent"}, "not a Ray cluster"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused_with_the_reason(
    told: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_survey, "reach", lambda *_: None)
    monkeypatch.setattr(ray_survey, "speaks_tls", lambda *_: False)
    monkeypatch.setattr(ray_survey, "_ask", lambda *_: told)

    with pytest.raises(StokerError, match=reason):
        ray_survey.survey("/home", "10.0.0.1", 7866, "x" * 32, None)


def test_the_probe_reads_the_token_from_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        'printf \'{"state": "%s %s"}\' "$(cat $RAY_AUTH_TOKEN_PATH)" "$(stat -c %a $RAY_AUTH_TOKEN_PATH)"\n'
    )
    program.chmod(stat.S_IRWXU)
    monkeypatch.setattr("sys.executable", str(program))

    assert ray_survey._ask(str(tmp_path), "10.0.0.1:1", "secret", None)["state"] == "secret 600"
