"""Clusters that a box must not enter, and boxes that a cluster does not let in."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cluster.bed import Bed
from cluster.conftest import require_bed
from cluster.grpc_call import call_grpc

pytestmark = pytest.mark.usefixtures("ray")
TOKEN = {"STOKER_CLUSTER_TOKEN": "a" * 64}


@pytest.fixture(scope="module")
def bed(nvml_library: str) -> Iterator[Bed]:
    """Return two hosts."""
    require_bed()
    with Bed(hosts=2, library=nvml_library) as bed:
        yield bed


def test_a_ray_that_lets_in_everybody_is_refused(bed: Bed) -> None:
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    flags = ["--num-cpus=0", "--include-dashboard=false", "--disable-usage-stats"]
    place = ["--port=6399", f"--node-ip-address={bed.address(0)}"]
    flags += [f"--temp-dir={bed.folder}/r", "--object-store-memory=80000000"]
    open_to_all = bed.spawn(0, [*words, *flags, *place], env={"RAY_AUTH_MODE": "disabled"})
    assert open_to_all.stdout is not None
    assert any("Ray runtime started" in line for line in open_to_all.stdout)

    for verb in (["cluster", "join"], ["config", "ray.address"]):
        ended = bed.stoker(1, *verb, f"{bed.address(0)}:6399", env=TOKEN)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        assert "lets in everybody" in ended.stderr
        assert ended.stderr.count("\n") == 1
    assert bed.stoker(1, "cluster", "status").returncode == 1
    assert bed.processes(1) == {}
    bed.power_off(0)
    bed.power_on(0)


def test_who_has_a_wrong_token_or_none_is_not_let_in_and_nothing_is_left(bed: Bed) -> None:
    address = bed.address(0)
    silent = bed.stoker(1, "cluster", "join", address, env=TOKEN)
    assert "no cluster answers" in silent.stderr

    bed.ok(0, "cluster", "up", "--name", "first", "--no-tls")
    assert call_grpc(bed, 1, "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", 0, 7866) == 16
    assert call_grpc(bed, 1, "/grpc.health.v1.Health/Check", 0, 7866) == 0
    wrong = bed.stoker(1, "cluster", "join", address, env=TOKEN)
    without = bed.stoker(1, "cluster", "join", address)
    misnamed = bed.stoker(1, "cluster", "join", address, "--name", "a b", env=TOKEN)

    assert "the token is not that of the cluster" in wrong.stderr
    assert "the token is missing" in without.stderr
    assert "--name 'a b'" in misnamed.stderr
    assert [ended.returncode for ended in (wrong, without, misnamed)] == [1, 2, 2]
    assert bed.processes(1) == {}
    assert not (bed.home(1) / "cluster" / "settings.json").exists()
    assert not (bed.home(1) / "cluster" / "token").exists()
    assert "the cluster has ended" in bed.ok(0, "cluster", "leave")
    assert not any("ray" in words for words in bed.processes(0).values())
    assert bed.ok(0, "config", "ray.address").strip() == "none"
