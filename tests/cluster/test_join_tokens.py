"""Join tokens of a real cluster: they expire and can be revoked, and Ray's own token is in no line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from patience import until

pytestmark = pytest.mark.usefixtures("ray")


@pytest.fixture(scope="module")
def hosts(nvml_library: str) -> Iterator[Hosts]:
    """Return three hosts: the first has a cluster up, which the second has joined by the printed line."""
    require_hosts()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        join(hosts, 1, line_of(hosts.ok(0, "cluster", "up")))
        yield hosts


def join(hosts: Hosts, host: int, token: str) -> None:
    hosts.ok(host, "cluster", "join", hosts.address(0), env={"STOKER_CLUSTER_TOKEN": token})


def line_of(said: str) -> str:
    found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", said)
    assert found is not None, said
    return found[1]


def refusal(hosts: Hosts, host: int, token: str) -> str:
    ended = hosts.stoker(
        host, "cluster", "join", hosts.address(0), env={"STOKER_CLUSTER_TOKEN": token}
    )
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert ended.stderr.count("\n") == 1
    assert not (hosts.home(host) / "cluster" / "settings.json").exists()
    assert not (hosts.home(host) / "cluster" / "token").exists()
    assert not [*(hosts.home(host) / "cluster").glob("tls*")]
    assert hosts.processes(host) == {}
    return ended.stderr


def status(hosts: Hosts) -> dict[str, Any]:
    told = json.loads(hosts.ok(0, "cluster", "status", "--json"))
    assert isinstance(told, dict)
    return told


def test_the_printed_line_lets_a_box_in_and_does_not_hold_the_token_of_ray(hosts: Hosts) -> None:
    hosts.ok(0, "cluster", "token")
    said = hosts.ok(0, "cluster", "up")

    own = (hosts.home(0) / "cluster" / "token").read_text()
    assert own not in said
    assert (hosts.home(1) / "cluster" / "token").read_text() == own
    assert line_of(hosts.ok(0, "cluster", "up")) == line_of(said)


def test_the_boxes_speak_tls_and_only_the_first_has_the_key_of_the_authority(hosts: Hosts) -> None:
    names = [{path.name for path in (hosts.home(host) / "cluster").glob("tls*")} for host in (0, 1)]
    assert names[1] == {"tls.json", "tls-ca.crt", "tls-node.crt", "tls-node.key"}
    assert names[0] == {*names[1], "tls-ca.key"}
    for host in (0, 1):
        assert "TLS, certificate" in hosts.ok(host, "cluster", "status")
    own = (hosts.home(0) / "cluster" / "token").read_text()
    assert "speaks TLS" in refusal(hosts, 2, own)


def test_boxes_join_at_the_named_address_only(hosts: Hosts) -> None:
    listeners = hosts.run(0, ["ss", "-ltnH", "sport = 7867"]).stdout.split()
    assert listeners[3] == f"{hosts.address(0)}:7867"


def test_an_expired_token_lets_no_box_in(hosts: Hosts) -> None:
    token = line_of(hosts.ok(0, "cluster", "token", "--expires", "0.1s"))
    kept = json.loads((hosts.home(0) / "cluster" / "join-tokens.json").read_bytes())
    until(lambda: time.time() >= kept[-1]["expires_at"], "the token has expired")
    assert "the join token has expired" in refusal(hosts, 2, token)


def test_a_revoked_token_lets_no_box_in_and_members_stay(hosts: Hosts) -> None:
    token = line_of(hosts.ok(0, "cluster", "token", "--expires", "never"))
    assert "join tokens are revoked" in hosts.ok(0, "cluster", "revoke")

    assert "the join token was revoked" in refusal(hosts, 2, token)
    assert "no join token works" in hosts.ok(0, "cluster", "status")
    again = hosts.stoker(0, "cluster", "up")
    assert (again.returncode, again.stdout) == (0, "")
    assert "no join token works: stoker cluster token makes one" in again.stderr
    until(
        lambda: {node["name"]: node["state"] for node in status(hosts)["nodes"]}.get("h1") == "up",
        "h1 is still a member",
    )
    fresh = line_of(hosts.ok(0, "cluster", "token"))
    assert fresh != token
    join(hosts, 2, fresh)
    hosts.ok(2, "cluster", "leave")


def test_only_the_first_box_makes_and_revokes_join_tokens(hosts: Hosts) -> None:
    for action in ("token", "revoke"):
        ended = hosts.stoker(1, "cluster", action)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "on the first box" in ended.stderr
    ended = hosts.stoker(0, "cluster", "token", "--expires", "soon")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
