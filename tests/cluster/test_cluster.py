"""A cluster of three boxes, from `up` to `leave`, and the join tokens that let boxes in.

The fourth host is a member only within a test.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from patience import until
from stoker.client.client import Client
from stoker.cluster.join_tokens import newest_join_token
from stoker.cluster.ssh.box_records import Box, load_boxes, save_box

pytestmark = pytest.mark.usefixtures("ray")
STRANGER = 3


class Cluster:
    """Hosts with h0 as the first box, and h1 and h2 joined."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        said = hosts.ok(0, "cluster", "up")
        found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", said)
        assert found is not None, said
        assert found[1] == self.token
        self.address = found[2]
        self.join(1, "--label", "disk=nvme")
        self.join(2)

    @property
    def token(self) -> str:
        """The newest join token that lets boxes in."""
        found = newest_join_token(str(self.hosts.home(0)), time.time())
        assert found is not None
        return found.text

    def join(self, host: int, *words: str) -> str:
        env = {"STOKER_CLUSTER_TOKEN": self.token}
        return self.hosts.ok(host, "cluster", "join", self.address, *words, env=env)

    def refusal(self, host: int, token: str) -> str:
        """What a host is told that must not be let in; nothing is left there."""
        env = {"STOKER_CLUSTER_TOKEN": token}
        ended = self.hosts.stoker(host, "cluster", "join", self.address, env=env)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        assert ended.stderr.count("\n") == 1
        folder = self.hosts.home(host) / "cluster"
        assert not (folder / "settings.json").exists()
        assert not (folder / "token").exists()
        assert not [*folder.glob("tls*")]
        assert self.hosts.processes(host) == {}
        return ended.stderr

    def status(self, host: int) -> dict[str, Any]:
        told = json.loads(self.hosts.stoker(host, "cluster", "status", "--json").stdout)
        assert isinstance(told, dict)
        return told

    def states(self) -> dict[str, str]:
        """The states of all boxes, as the daemon of the first one tells."""
        with Client(str(self.hosts.home(0)), restart=False) as client:
            return {node.name: node.state for node in client.nodes()}

    def ray_supervisor(self, host: int) -> dict[str, Any]:
        """How Ray is there, without asking the whole cluster."""
        text = (self.hosts.home(host) / "cluster" / "ray_supervisor.json").read_text()
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def of_ray(self, host: int) -> list[int]:
        return [pid for pid, words in self.hosts.processes(host).items() if "ray" in words]

    def stand_ins(self, host: int) -> int:
        """How many processes stand in for Ray's two agents."""
        return [*self.hosts.processes(host).values()].count("cat")

    def raylet(self, host: int) -> int:
        (pid,) = (
            pid for pid, words in self.hosts.processes(host).items() if "raylet/raylet" in words
        )
        return pid


@pytest.fixture(scope="module")
def cluster(ray: None, nvml_library: str) -> Iterator[Cluster]:
    """Return three boxes, joined, and a host that is none of them."""
    require_hosts()
    with Hosts(hosts=4, library=nvml_library) as hosts:
        yield Cluster(hosts)


def line_of(said: str) -> str:
    found = re.search(r"STOKER_CLUSTER_TOKEN=(\S+) stoker cluster join (\S+)", said)
    assert found is not None, said
    return found[1]


def test_all_boxes_know_all_boxes(cluster: Cluster) -> None:
    everybody = {"h0": "up", "h1": "up", "h2": "up"}
    until(lambda: cluster.states() == everybody, "the first box has found the others", 60)
    for host in (0, 2):
        nodes = cluster.status(host)["nodes"]
        # Ray, which h2 asks, also knows boxes that were there once.
        assert everybody.items() <= {node["name"]: node["state"] for node in nodes}.items()
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
    until(lambda: cluster.stand_ins(1) == 2, "those of the killed raylet have ended")
    until(lambda: set(cluster.states().values()) == {"up"}, "all are there", 60)


def test_a_start_of_ray_that_hangs_is_given_up_and_made_again(cluster: Cluster) -> None:
    log = cluster.hosts.home(1) / "cluster" / "ray_supervisor.log"
    before = len(log.read_text())
    cluster.hosts.kill(1, cluster.raylet(1))

    def starting() -> list[int]:
        found = cluster.hosts.processes(1).items()
        return [pid for pid, words in found if "stoker.cluster.ray_launcher" in words]

    (launcher,) = until(starting, "Ray starts again", 60)
    cluster.hosts.kill(1, launcher, signal.SIGSTOP)
    until(lambda: "it is started again" in log.read_text()[before:], "the start is given up", 60)

    assert launcher not in cluster.hosts.processes(1)
    until(lambda: cluster.ray_supervisor(1)["state"] == "up", "Ray is up again", 60)
    until(lambda: set(cluster.states().values()) == {"up"}, "all are there", 60)


def test_ray_runs_no_process_that_the_queue_does_not_need(cluster: Cluster) -> None:
    others = re.compile(r"ashboard|RuntimeEnv|runtime_env|monitor|ray\.scripts")
    for host in (0, 1):
        programs = [line.partition(" --")[0] for line in cluster.hosts.processes(host).values()]
        assert [program for program in programs if "raylet/raylet" in program]
        assert not [program for program in programs if others.search(program)]


def test_ray_does_not_outlive_its_ray_supervisor(cluster: Cluster) -> None:
    cluster.hosts.kill(2, cluster.ray_supervisor(2)["pid"])
    until(lambda: not cluster.of_ray(2), "Ray is gone", 30)
    assert "the Ray supervisor does not run" in cluster.hosts.ok(2, "cluster", "status")
    assert "again, as h2" in cluster.hosts.ok(2, "cluster", "join", cluster.address)
    until(lambda: cluster.states().get("h2") == "up", "h2 is back", 60)


def test_a_box_without_power_is_seen_to_be_down_and_joins_again_without_the_token(
    cluster: Cluster,
) -> None:
    home = str(cluster.hosts.home(0))
    save_box(home, "h2", Box(target="root@h2", python="/usr/bin/python3", digest="1f"))
    cluster.hosts.power_off(2)
    until(lambda: cluster.states()["h2"] == "away", "h2 is away", 60)
    assert "h2 is forgotten" in cluster.hosts.ok(0, "cluster", "forget", "h2")
    assert load_boxes(home) == {}
    cluster.hosts.power_on(2)
    said = cluster.hosts.ok(2, "cluster", "join", cluster.address)
    assert "again, as h2" in said
    until(lambda: cluster.states().get("h2") == "up", "h2 is back", 60)


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
    until(lambda: cluster.states() == {"h0": "up", "h1": "up", "h2": "up"}, "all are there", 60)


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
    kept, copied = (cluster.hosts.home(host) / "cluster" / "node.json" for host in (STRANGER, 1))
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.write_bytes(copied.read_bytes())
    env = {"STOKER_CLUSTER_TOKEN": cluster.token}
    joined = cluster.hosts.stoker(STRANGER, "cluster", "join", cluster.address, env=env)
    assert (joined.returncode, joined.stderr.count("\n")) == (0, 2)
    assert f"h1, at {cluster.hosts.address(1)}, has the id of this box" in joined.stderr
    assert "another box of the cluster has the name h1: this one is h1-2" in joined.stderr
    everybody = {"h0": "up", "h1": "up", "h2": "up", "h1-2": "up"}
    until(lambda: cluster.states() == everybody, "both are there", 60)
    cluster.hosts.ok(STRANGER, "cluster", "leave")
    kept.unlink()


def test_the_printed_line_lets_a_box_in_and_does_not_hold_the_token_of_ray(
    cluster: Cluster,
) -> None:
    hosts = cluster.hosts
    hosts.ok(0, "cluster", "token")
    said = hosts.ok(0, "cluster", "up")

    own = (hosts.home(0) / "cluster" / "token").read_text()
    assert own not in said
    assert (hosts.home(1) / "cluster" / "token").read_text() == own
    assert line_of(hosts.ok(0, "cluster", "up")) == line_of(said)


def test_the_boxes_speak_tls_and_only_the_first_has_the_key_of_the_authority(
    cluster: Cluster,
) -> None:
    hosts = cluster.hosts
    names = [{path.name for path in (hosts.home(host) / "cluster").glob("tls*")} for host in (0, 1)]
    assert names[1] == {"tls.json", "tls-ca.crt", "tls-node.crt", "tls-node.key"}
    assert names[0] == {*names[1], "tls-ca.key"}
    for host in (0, 1):
        assert "TLS, certificate" in hosts.ok(host, "cluster", "status")
    own = (hosts.home(0) / "cluster" / "token").read_text()
    assert "speaks TLS" in cluster.refusal(STRANGER, own)


def test_boxes_join_at_the_named_address_only(cluster: Cluster) -> None:
    listeners = cluster.hosts.run(0, ["ss", "-ltnH", "sport = 7867"]).stdout.split()
    assert listeners[3] == f"{cluster.hosts.address(0)}:7867"


def test_an_expired_token_lets_no_box_in(cluster: Cluster) -> None:
    token = line_of(cluster.hosts.ok(0, "cluster", "token", "--expires", "0.1s"))
    kept = json.loads((cluster.hosts.home(0) / "cluster" / "join-tokens.json").read_bytes())
    until(lambda: time.time() >= kept[-1]["expires_at"], "the token has expired")
    assert "the join token has expired" in cluster.refusal(STRANGER, token)


def test_a_revoked_token_lets_no_box_in_and_members_stay(cluster: Cluster) -> None:
    hosts = cluster.hosts
    token = line_of(hosts.ok(0, "cluster", "token", "--expires", "never"))
    assert "join tokens are revoked" in hosts.ok(0, "cluster", "revoke")

    assert "the join token was revoked" in cluster.refusal(STRANGER, token)
    assert "no join token works" in hosts.ok(0, "cluster", "status")
    again = hosts.stoker(0, "cluster", "up")
    assert (again.returncode, again.stdout) == (0, "")
    assert "no join token works: stoker cluster token makes one" in again.stderr
    until(lambda: cluster.states().get("h1") == "up", "h1 is still a member")
    assert line_of(hosts.ok(0, "cluster", "token")) != token


def test_a_new_token_lets_a_box_in_which_leaves_no_process_of_ray_and_no_token(
    cluster: Cluster,
) -> None:
    hosts = cluster.hosts
    hosts.ok(0, "cluster", "revoke")
    hosts.ok(0, "cluster", "token")
    assert "as h3" in cluster.join(STRANGER)
    assert "left the cluster" in hosts.ok(STRANGER, "cluster", "leave")
    assert hosts.processes(STRANGER) == {}
    assert not (hosts.home(STRANGER) / "cluster" / "token").exists()
    again = hosts.stoker(STRANGER, "cluster", "leave")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == ("stoker: this box belongs to no cluster: there is nothing to leave\n")


def test_only_the_first_box_makes_and_revokes_join_tokens(cluster: Cluster) -> None:
    for action in ("token", "revoke"):
        ended = cluster.hosts.stoker(1, "cluster", action)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "on the first box" in ended.stderr
    ended = cluster.hosts.stoker(0, "cluster", "token", "--expires", "soon")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
