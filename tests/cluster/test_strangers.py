"""Clusters that a box must not enter, and boxes that a cluster does not let in."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cluster.conftest import require_hosts
from cluster.grpc_call import call_grpc
from cluster.netns_hosts import Hosts

pytestmark = pytest.mark.usefixtures("ray")
TOKEN = {"STOKER_CLUSTER_TOKEN": "a" * 64}


@pytest.fixture(scope="module")
def hosts(nvml_library: str) -> Iterator[Hosts]:
    """Return two hosts."""
    require_hosts()
    with Hosts(hosts=2, library=nvml_library) as hosts:
        yield hosts


def test_a_ray_that_lets_in_everybody_is_refused(hosts: Hosts) -> None:
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    flags = ["--num-cpus=0", "--include-dashboard=false", "--disable-usage-stats"]
    place = ["--port=6399", f"--node-ip-address={hosts.address(0)}"]
    flags += [f"--temp-dir={hosts.folder}/r", "--object-store-memory=80000000"]
    open_to_all = hosts.spawn(0, [*words, *flags, *place], env={"RAY_AUTH_MODE": "disabled"})
    assert open_to_all.stdout is not None
    assert any("Ray runtime started" in line for line in open_to_all.stdout)

    for verb in (["cluster", "join"], ["config", "ray.address"]):
        ended = hosts.stoker(1, *verb, f"{hosts.address(0)}:6399", env=TOKEN)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        assert "has no authentication" in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert hosts.stoker(1, "cluster", "status").returncode == 1
    assert hosts.processes(1) == {}
    hosts.power_off(0)
    hosts.power_on(0)


def test_who_has_a_wrong_token_or_none_is_not_let_in_and_nothing_is_left(hosts: Hosts) -> None:
    address = hosts.address(0)
    silent = hosts.stoker(1, "cluster", "join", address, env=TOKEN)
    assert "no cluster answers" in silent.stderr

    hosts.ok(0, "cluster", "up", "--name", "first", "--no-tls")
    assert call_grpc(hosts, 1, "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", 0, 7866) == 16
    assert call_grpc(hosts, 1, "/grpc.health.v1.Health/Check", 0, 7866) == 0
    wrong = hosts.stoker(1, "cluster", "join", address, env=TOKEN)
    without = hosts.stoker(1, "cluster", "join", address)
    misnamed = hosts.stoker(1, "cluster", "join", address, "--name", "a b", env=TOKEN)

    assert "the token is not that of the cluster" in wrong.stderr
    assert "the token is missing" in without.stderr
    assert "--name 'a b'" in misnamed.stderr
    assert [ended.returncode for ended in (wrong, without, misnamed)] == [1, 2, 2]
    assert hosts.processes(1) == {}
    assert not (hosts.home(1) / "cluster" / "settings.json").exists()
    assert not (hosts.home(1) / "cluster" / "token").exists()
    assert "the cluster has ended" in hosts.ok(0, "cluster", "leave")
    assert not any("ray" in words for words in hosts.processes(0).values())
    assert hosts.ok(0, "config", "ray.address").strip() == "none"
