"""A cluster with certificates of the user's own: a box without one gets no answer at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from cluster.certificates import Authority
from cluster.conftest import require_hosts
from cluster.grpc_call import START_SYNC, call_grpc
from cluster.netns_hosts import Hosts
from patience import until

pytestmark = pytest.mark.usefixtures("ray")


class TlsCluster(NamedTuple):
    """A hosts of three hosts whose first two are in a cluster with TLS."""

    hosts: Hosts
    authority: Authority
    token: str

    def join(self, certificates: dict[str, str]) -> tuple[int, str]:
        """Let the third host try to join; its exit code and what it says."""
        env = {"STOKER_CLUSTER_TOKEN": self.token, **certificates}
        ended = self.hosts.stoker(2, "cluster", "join", self.hosts.address(0), env=env)
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 1
        assert not (self.hosts.home(2) / "cluster" / "settings.json").exists()
        assert self.hosts.processes(2) == {}
        return ended.returncode, ended.stderr


@pytest.fixture(scope="module")
def cluster(ray: None, nvml_library: str) -> Iterator[TlsCluster]:
    require_hosts()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        authority = Authority(hosts.folder)
        said = hosts.ok(0, "cluster", "up", env=authority.environment(hosts.address(0)))
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+)", said)
        assert found is not None
        env = {
            "STOKER_CLUSTER_TOKEN": found[1],
            **authority.environment(hosts.address(1)),
        }
        hosts.ok(1, "cluster", "join", hosts.address(0), env=env)
        yield TlsCluster(hosts, authority, found[1])


def test_jobs_run_on_a_box_that_joined_with_its_certificate(cluster: TlsCluster) -> None:
    until(lambda: "h1" in cluster.hosts.ok(0, "cluster", "status"), "the head has found h1")
    cluster.hosts.ok(0, "add", "-q", "--node", "h1", "--", "true")
    assert cluster.hosts.stoker(0, "wait").returncode == 0
    assert "TLS" in cluster.hosts.ok(0, "cluster", "status")


def test_a_box_without_a_certificate_cannot_join(cluster: TlsCluster) -> None:
    code, said = cluster.join({})
    assert code == 1
    assert "speaks TLS" in said
    assert "RAY_TLS_SERVER_CERT" in said


def test_a_box_with_the_certificate_of_another_authority_cannot_join(cluster: TlsCluster) -> None:
    other = Authority(cluster.hosts.folder, "other")
    code, said = cluster.join(other.environment(cluster.hosts.address(2)))
    assert code == 1
    assert f"the certificate of {cluster.hosts.address(0)} is not accepted here" in said


def test_no_port_answers_a_call_without_a_certificate(cluster: TlsCluster) -> None:
    hosts = cluster.hosts

    def parts() -> set[int]:
        return {pid for pid, words in hosts.processes(0).items() if "/core/src/ray/" in words}

    before = parts()
    assert len(before) == 2
    for host in (0, 1):
        for line in hosts.run(host, ["ss", "-ltnpH"]).stdout.splitlines():
            port = int(line.split()[3].rpartition(":")[2])
            for scheme in ("http", "https"):
                for method in (START_SYNC, "/grpc.health.v1.Health/Check"):
                    assert call_grpc(hosts, 2, method, host, port, scheme) is None, line
    until(lambda: "h1" in hosts.ok(0, "cluster", "status"), "the head answers")
    assert parts() == before
