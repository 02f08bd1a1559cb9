"""A cluster whose machines reach each other through ssh alone: a firewall blocks every other port."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from cluster.ssh_hosts import SshHosts, require_sshd
from patience import until

pytestmark = [pytest.mark.usefixtures("ray"), pytest.mark.timeout(900)]
_LONG_S = 400.0  # a copy of Stoker and Ray, on a machine that has much else to do


@pytest.fixture
def hosts(nvml_library: str) -> Iterator[Hosts]:
    """Return h0, and h1 of which h0 reaches sshd alone, while h1 reaches nothing of h0."""
    require_hosts()
    require_sshd()
    with Hosts(hosts=2, library=nvml_library) as hosts:
        SshHosts(hosts)
        for number, way in ((0, "dport"), (1, "sport")):
            other = hosts.address(1 - number)
            script = f"""ip rule add pref 100 to {other} ipproto tcp {way} 22 lookup main
ip rule add pref 200 to {other} prohibit"""
            ended = hosts.run(number, ["sh", "-ec", script])
            assert ended.returncode == 0, ended.stderr
        yield hosts


def of_tunnel(hosts: Hosts, number: int) -> list[int]:
    """The processes of the tunnel on a host, besides sshd."""
    words = ("stoker.cluster.ssh.tunnel", "stoker.cluster.ssh.relay", "ssh -T")
    found = hosts.processes(number).items()
    return [
        pid for pid, line in found if any(word in line for word in words) and "sshd" not in line
    ]


def test_a_box_behind_a_firewall_is_a_node_through_ssh_and_its_jobs_outlive_a_broken_connection(
    hosts: Hosts,
) -> None:
    said = hosts.ok(0, "cluster", "up", "--over-ssh")
    assert "stoker cluster add user@host" in said
    assert "TOKEN" not in said
    command = [sys.executable, "-m", "stoker", "cluster"]
    ended = hosts.run(0, [*command, "add", "root@h1"], timeout_s=_LONG_S)
    assert ended.returncode == 0, ended
    assert "root@h1: joined the cluster at 127.77.0.1:7866 as h1\n" in ended.stdout
    gate = hosts.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"read line <{gate}; echo $line"]
    job = hosts.ok(0, "add", "-q", "--node", "h1", "--", *words).strip()
    until(lambda: '"running"' in hosts.ok(0, "show", job, "--json"), "the job runs")

    before = of_tunnel(hosts, 0)
    assert len(before) == len(("its process", "ssh"))
    for pid in before:
        hosts.kill(0, pid)
    until(lambda: not {*before} & {*hosts.processes(0)}, "the tunnel is gone")
    gate.write_text("hello\n")
    assert hosts.stoker(0, "wait", job).returncode == 0
    assert hosts.ok(0, "log", job) == "hello\n"
    assert '"attempt": 1' in hosts.ok(0, "show", job, "--json")

    assert hosts.run(0, [*command, "remove", "h1"], timeout_s=_LONG_S).returncode == 0
    until(lambda: of_tunnel(hosts, 0) + of_tunnel(hosts, 1) == [], "the tunnel is gone")
    assert not hosts.home(1).exists()
