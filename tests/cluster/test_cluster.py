"""A cluster of three boxes, from `up` to `leave`."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.netns_hosts import Hosts
from patience import until

pytestmark = pytest.mark.usefixtures("ray")


class Cluster:
    """A hosts with h0 as the first box, and h1 and h2 joined."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.said = hosts.ok(0, "cluster", "up")
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", self.said)
        assert found is not None, self.said
        self.token, self.address = found.groups()
        self.join(1, "--label", "disk=nvme")
        self.join(2)

    def join(self, host: int, *words: str) -> str:
        env = {"STOKER_CLUSTER_TOKEN": self.token}
        return self.hosts.ok(host, "cluster", "join", self.address, *words, env=env)

    def status(self, host: int) -> dict[str, Any]:
        told = json.loads(self.hosts.stoker(host, "cluster", "status", "--json").stdout)
        assert isinstance(told, dict)
        return told

    def states(self, host: int = 0) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.status(host)["nodes"]}

    def ray_supervisor(self, host: int) -> dict[str, Any]:
        """How Ray is there, without asking the whole cluster."""
        text = (self.hosts.home(host) / "cluster" / "ray_supervisor.json").read_text()
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def of_ray(self, host: int) -> list[int]:
        return [pid for pid, words in self.hosts.processes(host).items() if "ray" in words]

    def raylet(self, host: int) -> int:
        (pid,) = (
            pid for pid, words in self.hosts.processes(host).items() if "raylet/raylet" in words
        )
        return pid


@pytest.fixture(scope="module")
def cluster(ray: None, hosts: Hosts) -> Cluster:
    """Return the three boxes, joined."""
    return Cluster(hosts)


def test_all_boxes_know_all_boxes(cluster: Cluster) -> None:
    everybody = {"h0": "up", "h1": "up", "h2": "up"}
    until(lambda: cluster.states(0) == everybody, "the first box has found the others", 60)
    assert cluster.states(2) == everybody
    labels = {node["name"]: node["labels"] for node in cluster.status(0)["nodes"]}
    assert labels["h1"] == {"disk": "nvme"}
    shown = cluster.hosts.ok(0, "cluster", "status")
    assert "h1" in shown
    assert "disk=nvme" in shown


def test_the_daemon_of_the_first_box_gets_the_address_of_the_cluster(cluster: Cluster) -> None:
    told = cluster.hosts.ok(0, "config", "ray.address").strip()
    assert told == f"{cluster.hosts.address(0)}:7866"


def test_a_killed_raylet_restarts_under_the_same_name(cluster: Cluster) -> None:
    before = cluster.status(1)
    cluster.hosts.kill(1, cluster.raylet(1))

    def is_back() -> bool:
        now = cluster.ray_supervisor(1)
        return bool(now["restarts"] > before["ray_supervisor"]["restarts"]) and now["state"] == "up"

    until(is_back, "Ray is up again", 60)
    now = cluster.status(1)
    assert now["id"] == before["id"]
    until(lambda: set(cluster.states(0).values()) == {"up"}, "all are there", 60)


def test_a_cut_cable_is_noticed_and_the_box_returns_when_it_is_mended(cluster: Cluster) -> None:
    cluster.hosts.cut(1)
    until(lambda: cluster.states(0)["h1"] == "away", "h1 is seen to be gone", 60)
    cluster.hosts.mend(1)
    until(lambda: cluster.states(0)["h1"] == "up", "h1 is back by itself", 90)


def test_ray_does_not_outlive_its_ray_supervisor(cluster: Cluster) -> None:
    cluster.hosts.kill(2, cluster.ray_supervisor(2)["pid"])
    until(lambda: not cluster.of_ray(2), "Ray is gone", 30)
    assert "the Ray supervisor does not run" in cluster.hosts.ok(2, "cluster", "status")
    assert "again, as h2" in cluster.hosts.ok(2, "cluster", "join", cluster.address)
    until(lambda: cluster.states(0).get("h2") == "up", "h2 is back", 60)


def test_a_box_without_power_is_seen_to_be_down_and_joins_again_without_the_token(
    cluster: Cluster,
) -> None:
    cluster.hosts.power_off(2)
    until(lambda: cluster.states(0)["h2"] == "away", "h2 is away", 60)
    cluster.hosts.power_on(2)
    said = cluster.hosts.ok(2, "cluster", "join", cluster.address)
    assert "again, as h2" in said
    until(lambda: cluster.states(0).get("h2") == "up", "h2 is back", 60)


def test_a_box_that_left_has_no_process_of_ray_and_no_token(cluster: Cluster) -> None:
    assert "left the cluster" in cluster.hosts.ok(2, "cluster", "leave")
    assert cluster.hosts.processes(2) == {}
    assert not (cluster.hosts.home(2) / "cluster" / "token").exists()
    again = cluster.hosts.stoker(2, "cluster", "leave")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == ("stoker: this box belongs to no cluster: there is nothing to leave\n")
    assert "as h2" in cluster.join(2)


def refusals(cluster: Cluster) -> Iterator[tuple[int, list[str], int, str]]:
    address = cluster.address
    yield 0, ["up", "--port", "8000"], 1, "the cluster is up already"
    yield 0, ["up", "--no-tls"], 1, "with TLS: stoker cluster leave ends it first"
    yield 1, ["join", address, "--expires", "1h"], 2, "--expires is for up and token, not for join"
    yield 1, ["join", address, "--no-tls"], 2, "--no-tls is for up, not for join"
    yield 0, ["join", address], 1, "this box is the first of the cluster"
    yield 1, ["up"], 1, "this box is a node of the cluster"
    yield 1, ["join", f"{address}:9999"], 1, "this box is a member of the cluster"
    yield 1, ["join"], 2, "which cluster?"
    yield 1, ["join", "a b"], 2, "an address is HOST or HOST:PORT"
    yield 1, ["leave", "--port", "3"], 2, "--port is for up, not for leave"


def test_invalid_commands_are_refused_in_one_line_and_change_nothing(cluster: Cluster) -> None:
    for host, words, code, reason in refusals(cluster):
        ended = cluster.hosts.stoker(host, "cluster", *words)
        assert (ended.returncode, ended.stdout) == (code, ""), ended
        assert reason in ended.stderr
        assert ended.stderr.count("\n") == 1
    until(lambda: cluster.states(0) == {"h0": "up", "h1": "up", "h2": "up"}, "all are there", 60)


def test_up_and_join_twice_say_that_it_is_done_already(cluster: Cluster) -> None:
    up = cluster.hosts.stoker(0, "cluster", "up")
    assert up.returncode == 0
    assert "up already" in up.stderr
    assert f"STOKER_CLUSTER_TOKEN={cluster.token} stoker cluster join" in up.stdout
    joined = cluster.hosts.stoker(1, "cluster", "join", cluster.address)
    assert (joined.returncode, joined.stderr) == (
        0,
        "stoker: this box is a member already, as h1\n",
    )


def test_the_token_is_in_no_log_and_on_no_command_line(cluster: Cluster) -> None:
    of_ray = (cluster.hosts.home(0) / "cluster" / "token").read_text()
    secret = cluster.token.rpartition("-")[2]
    for host in range(3):
        words = " ".join(cluster.hosts.processes(host).values())
        assert of_ray not in words
        assert secret not in words
        patterns = ["-e", of_ray, "-e", secret]
        found = subprocess.run(
            ["grep", "-rlF", "--exclude=token", *patterns, cluster.hosts.home(host)],
            capture_output=True,
            text=True,
        )
        kept = cluster.hosts.home(0) / "cluster" / "join-tokens.json"
        assert found.stdout == (f"{kept}\n" if host == 0 else "")


def test_a_copy_of_a_box_that_is_there_joins_as_another(cluster: Cluster) -> None:
    cluster.hosts.ok(2, "cluster", "leave")
    kept, copied = (cluster.hosts.home(host) / "cluster" / "node.json" for host in (2, 1))
    own = kept.read_bytes()
    kept.write_bytes(copied.read_bytes())
    env = {"STOKER_CLUSTER_TOKEN": cluster.token}
    joined = cluster.hosts.stoker(2, "cluster", "join", cluster.address, env=env)
    assert (joined.returncode, joined.stderr.count("\n")) == (0, 1)
    assert f"h1, at {cluster.hosts.address(1)}, has the id of this box" in joined.stderr
    everybody = {"h0": "up", "h1": "up", "h1-2": "up"}
    until(lambda: cluster.states(0) == everybody, "both are there", 60)
    cluster.hosts.ok(2, "cluster", "leave")
    kept.write_bytes(own)
    assert "as h2" in cluster.join(2)
