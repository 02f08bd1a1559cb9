"""Ray's command line and environment.

Stoker uses Ray only for membership, transport and failure detection. Ray gets no CPUs and no GPUs, because
Stoker places the jobs: so no task of Ray's can use a GPU that Stoker gives away, not even between a node's
joining and the start of its agent. Without CPUs Ray also starts no idle workers in advance.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from stoker import __version__
from stoker.cluster.protocol import PROTOCOL
from stoker.cluster.settings import ClusterNode, ClusterSettings, token_path
from stoker.cluster.tls import load_certificates, tls_environment
from stoker.submit_context import OURS

# Labels of every node in Ray, by which Stoker recognises its nodes.
NODE_LABEL, NAME_LABEL, VERSION_LABEL = "stoker-node", "stoker-name", "stoker-version"
PROTOCOL_LABEL = "stoker-protocol"

# The token is passed in the environment: every user of the box could read an argument.
TOKEN_VARIABLE = "STOKER_CLUSTER_TOKEN"  # noqa: S105 - its name

# The folder from which this Stoker was imported.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OBJECT_STORE_BYTES = 80_000_000  # about Ray's minimum: no data goes through it
# With these settings a dead raylet is noticed within 2 s and a cut cable within 10, instead of 13 and 65.
_HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


def ray_words(node: ClusterNode, settings: ClusterSettings, temp_dir: str) -> list[str]:
    """Return the command that runs this box's part of the cluster in the foreground."""
    labels = {
        **settings.labels,
        NODE_LABEL: node.id,
        NAME_LABEL: node.name,
        VERSION_LABEL: __version__.replace("+", "-"),
        PROTOCOL_LABEL: str(PROTOCOL),
    }
    return [
        *(sys.executable, "-m", "stoker.cluster.ray_launcher", "--block"),
        *_place(settings),
        f"--node-ip-address={settings.own_address}",
        *_ports(settings),
        "--num-cpus=0",
        "--num-gpus=0",
        f"--object-store-memory={_OBJECT_STORE_BYTES}",
        f"--temp-dir={temp_dir}",
        "--include-log-monitor=false",
        "--disable-usage-stats",
        "--labels=" + ",".join(f"{key}={value}" for key, value in labels.items()),
    ]


def _place(settings: ClusterSettings) -> list[str]:
    if settings.is_head:
        return ["--head", f"--port={settings.port}", "--include-dashboard=false"]
    return [f"--address={settings.target}"]


def _ports(settings: ClusterSettings) -> list[str]:
    """Return the options that keep Ray to a small range of ports, for firewalls."""
    ports = settings.ray_ports
    if ports is None:
        return []
    return [
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--runtime-env-agent-port={ports.runtime_environments}",
        f"--min-worker-port={ports.first_worker}",
        f"--max-worker-port={ports.last_worker}",
    ]


def ray_environment(home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Ray's processes and clients, with the token and the certificates.

    The user's own RAY_ variables are removed: they are meant for other clusters. PYTHONPATH is removed too,
    unless Stoker itself is there: a project's modules could replace Ray's.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("RAY_") and os.fsencode(name) not in OURS
    }
    kept.pop(TOKEN_VARIABLE, None)
    folders = kept.pop("PYTHONPATH", "").split(os.pathsep)
    if any(folder and os.path.abspath(folder) == _ROOT for folder in folders):
        kept["PYTHONPATH"] = _ROOT
    return {
        **kept,
        **_HEALTH,
        "STOKER_HOME": home,
        "STOKER_PART": "ray_supervisor",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token_path(home),
        **tls_environment(load_certificates(home)),
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",
        # The processes that stand in for Ray's agents end with the raylet.
        "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
        # The memory monitor would kill the agent, Ray's only task here, when jobs fill the memory.
        "RAY_memory_monitor_refresh_ms": "0",
        "PYTHONUNBUFFERED": "1",
    }
