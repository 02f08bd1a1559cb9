"""`python -m stoker.cluster.ray_probe ADDRESS`: asks a Ray cluster for its versions and nodes.

A separate process, because importing Ray takes a second and starts threads. It prints one JSON object:

    {"state": "silent"}                             no answer
    {"state": "open"}                               the cluster accepts clients without a token
    {"state": "refused"}                            the cluster has another token
    {"state": "ok", "ray": …, "python": …, "nodes": [{"address", "is_head", "alive", "labels"}, …]}

It asks Ray's control service without becoming a driver, which would need a Ray node on this box.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib import import_module
from typing import Any

_TIMEOUT_S = 10.0


def main(argv: list[str]) -> int:
    """Probe the cluster and print the answer."""
    (address,) = argv
    with contextlib.redirect_stdout(sys.stderr):
        answer = probe(address)
    print(json.dumps(answer))
    return 0


def probe(address: str) -> dict[str, Any]:
    """Return the cluster's versions and nodes, or why they are unknown."""
    from ray.exceptions import AuthenticationError, RayError

    try:
        try:
            _client(address, "disabled")
        except AuthenticationError:
            pass
        else:
            return {"state": "open"}
        try:
            client = _client(address, "token")
        except AuthenticationError:
            return {"state": "refused"}
        return {"state": "ok", **_describe(client)}
    except RayError as error:
        return {"state": "silent", "error": str(error)}


def _client(address: str, mode: str) -> Any:
    """Return an accepted connection, with the token or without."""
    raylet: Any = import_module("ray._raylet")
    os.environ["RAY_AUTH_MODE"] = mode
    raylet.Config.initialize("")  # Ray reads its environment only once, but there are two tries
    client = raylet.GcsClient(address=address)
    client.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster", timeout=_TIMEOUT_S)
    return client


def _describe(client: Any) -> dict[str, Any]:
    told = client.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster", timeout=_TIMEOUT_S)
    versions = json.loads(told or b"{}")
    nodes = [
        {
            "address": node.node_manager_address,
            "is_head": bool(node.is_head_node),
            "alive": node.state == 0,
            "labels": dict(node.labels),
        }
        for node in client.get_all_node_info(timeout=_TIMEOUT_S).values()
    ]
    return {
        "ray": str(versions.get("ray_version", "?")),
        "python": str(versions.get("python_version", "?")),
        "nodes": nodes,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
