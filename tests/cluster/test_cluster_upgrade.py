"""An upgrade of a cluster, first of the head and then of a node, while jobs run on both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

import stoker
from cluster.cluster_fixture import Lab
from cluster.conftest import require_hosts
from cluster.installed import Installed
from cluster.netns_hosts import Hosts
from patience import until
from stoker.client.client import Client
from stoker.cluster.protocol import PROTOCOL

pytestmark = [pytest.mark.usefixtures("ray"), pytest.mark.timeout(300)]
OLD = "0.0.9"
LEASE_S = 60.0  # not what is tested: a busy machine starts Ray slowly


@pytest.fixture
def hosts(nvml_library: str) -> Iterator[Hosts]:
    """Return two hosts."""
    require_hosts()
    with Hosts(hosts=2, library=nvml_library) as hosts:
        yield hosts


def versions(lab: Lab) -> dict[str, str]:
    with Client(str(lab.hosts.home(0)), restart=False) as client:
        return {node.name: node.version for node in client.nodes() if node.state == "up"}


def other_ray(hosts: Hosts) -> None:
    """Let the head have recorded that another version of Ray runs there."""
    path = hosts.home(0) / "cluster" / "ray_supervisor.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "ray": "2.59.0"}))


def test_an_upgrade_of_the_head_and_then_of_a_node_ends_no_job(hosts: Hosts) -> None:
    installed = [Installed(hosts, host, OLD) for host in range(2)]
    lab = Lab(hosts, LEASE_S)
    go = lab.path("go")
    waits = f"while [ ! -e {go} ]; do sleep 0.1; done"
    jobs = [lab.add(waits, "--node", name) for name in ("h0", "h1")]
    for job in jobs:
        lab.until_state(job, "running", 60)
    assert versions(lab) == {"h0": OLD, "h1": OLD}
    bridge = lab.pid(0, "bridge")

    installed[0].set_version(stoker.__version__, PROTOCOL)
    restarted = hosts.stoker(0, "daemon", "restart")

    assert restarted.returncode == 0, restarted
    assert f"Stoker {stoker.__version__} has taken over from {OLD}" in restarted.stderr
    remedy = rf"install Stoker {stoker.__version__} on h1 \(Stoker {OLD}\).*cluster join 10\.77\.0\.1:7866"
    assert re.search(remedy, restarted.stderr)
    until(lambda: versions(lab) == {"h0": stoker.__version__, "h1": OLD}, "h1 is back")
    assert lab.pid(0, "bridge") != bridge
    short = lab.add("true", "--node", "h1")
    lab.until_state(short, "done", 60)

    installed[1].set_version(stoker.__version__, PROTOCOL)
    taken = hosts.ok(1, "cluster", "join", hosts.address(0))

    assert f"Stoker {stoker.__version__} has taken over on this box, h1" in taken
    until(lambda: versions(lab) == dict.fromkeys(("h0", "h1"), stoker.__version__), "h1 is back")
    other_ray(hosts)
    refused = hosts.stoker(0, "daemon", "restart")
    assert refused.returncode == 1
    assert "the cluster runs Ray 2.59.0" in refused.stderr
    assert "pip install ray==2.59.0" in refused.stderr
    supervisor = lab.pid(1, "ray_supervisor")
    mark = lab.mark()
    taken = hosts.ok(0, "cluster", "up")

    assert "the installed Stoker and Ray have taken over" in taken
    lab.until_told(mark, "h1 is there", 60)
    assert lab.pid(1, "ray_supervisor") == supervisor
    go.touch()
    for job in jobs:
        lab.until_state(job, "done", 60)
        assert [row.number for row in lab.of(job)] == [1]
    again = hosts.stoker(1, "cluster", "join", hosts.address(0))
    assert "is a member already" in again.stderr
