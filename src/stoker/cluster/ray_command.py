"""How Ray is started: its command lines and its environment.

Ray is membership, transport and failure detection here, and nothing else. It is told of no CPUs and
no GPUs: Stoker places the jobs, so that nobody else's task may land on a GPU that Stoker gives away,
also not in the moment between a node's joining and its agent's start; and without CPUs Ray starts no
idle workers ahead of need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from stoker import __version__
from stoker.cluster.settings import ClusterNode, ClusterSettings, token_path
from stoker.cluster.tls import load_certificates, tls_environment
from stoker.submit_context import OURS

# Told to Ray with every node, so that whoever looks at the cluster can tell who is who.
NODE_LABEL, NAME_LABEL, VERSION_LABEL = "stoker-node", "stoker-name", "stoker-version"

# How a token is given: an argument could be read by every user of the box.
TOKEN_VARIABLE = "STOKER_CLUSTER_TOKEN"  # noqa: S105 - its name

# The folder that this Stoker was found in.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OBJECT_STORE_BYTES = 80_000_000  # the least Ray takes, about: no data goes through it
# A dead raylet is noticed within 2 s and a cut cable within 10, instead of 13 and 65.
_HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


def ray_words(node: ClusterNode, settings: ClusterSettings, temp_dir: str) -> list[str]:
    """The command that is this box's part of the cluster, until it is ended."""
    labels = {
        **settings.labels,
        NODE_LABEL: node.id,
        NAME_LABEL: node.name,
        VERSION_LABEL: __version__.replace("+", "-"),
    }
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
        *_place(settings),
        f"--node-ip-address={settings.own_address}",
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


def ray_environment(home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Ray's processes, and whoever talks to them, find token and certificates.

    The user's own settings of Ray are left out: they are meant for other clusters. So are folders of modules
    in PYTHONPATH, unless Stoker itself lies there: a project's modules could take the place of Ray's.
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
        # It would end the agent, which is all that Ray runs, when jobs fill the memory.
        "RAY_memory_monitor_refresh_ms": "0",
        "PYTHONUNBUFFERED": "1",
    }
