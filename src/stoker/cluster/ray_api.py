"""All uses of Ray's Python interface. Of the other modules, only `ray_launcher` imports Ray.

Ray is an optional dependency and takes a second to import, so each function imports it when it is called.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

_NAMESPACE = "stoker"
_PROBE_TIMEOUT_S = 10.0


class RayNode(NamedTuple):
    """A live node of Ray. Its id is Ray's own and changes when Ray restarts there."""

    id: str
    address: str
    hostname: str
    gpus: float


class RayActor:
    """A running actor with the method `call`."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def call(self, request: bytes) -> Awaitable[bytes]:
        """Call the actor. The result raises what the actor raises, and Ray's errors."""
        reply: Awaitable[bytes] = self._handle.call.remote(request)
        return reply

    def kill(self) -> None:
        """End the actor; Ray does not restart it."""
        import ray

        ray.kill(self._handle)


def connect_driver(address: str) -> str:
    """Make this process a driver of the Ray at an address. Returns the id of this machine's node."""
    import ray

    ray.init(
        address=address,
        namespace=_NAMESPACE,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=False,
    )
    return str(ray.get_runtime_context().get_node_id())


def list_live_nodes() -> list[RayNode]:
    """Return the nodes that Ray considers alive."""
    import ray

    list_nodes: Any = ray.nodes
    return [
        RayNode(
            node["NodeID"],
            node["NodeManagerAddress"],
            node["NodeManagerHostname"],
            node["Resources"].get("GPU", 0),
        )
        for node in list_nodes()
        if node["Alive"]
    ]


def get_actor(kind: Callable[[str], object], queue: str, node: RayNode) -> RayActor:
    """Return a queue's actor on a node, which is started if there is none.

    Ray restarts it when it dies. It has all GPUs that Ray knows on the node, so no task of Ray's uses them.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options = ray.remote(kind).options(
        name=f"agent-{queue}-{node.id}",
        namespace=_NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        num_gpus=node.gpus,
        max_restarts=-1,
        max_concurrency=100,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node.id, soft=False),
    )
    return RayActor(options.remote(queue))


def probe(address: str) -> dict[str, Any]:
    """Return the versions and nodes of the Ray cluster at an address, or why they are unknown.

    Asks Ray's control service without becoming a driver, which would need a Ray node on this box.
    """
    from ray.exceptions import AuthenticationError, RayError

    try:
        try:
            _connect(address, "disabled")
        except AuthenticationError:
            pass
        else:
            return {"state": "open"}
        try:
            client, versions = _connect(address, "token")
        except AuthenticationError:
            return {"state": "refused"}
        return {"state": "ok", **_describe(client, versions)}
    except RayError as error:
        return {"state": "silent", "error": str(error)}


def _connect(address: str, mode: str) -> tuple[Any, dict[str, Any]]:
    """Return an accepted client of the control service, with the token or without, and Ray's versions."""
    from ray import _raylet

    raylet: Any = _raylet
    os.environ["RAY_AUTH_MODE"] = mode
    raylet.Config.initialize("")  # Ray reads its environment only once, but there are two tries
    client = raylet.GcsClient(address=address)
    found = client.internal_kv_get(
        b"CLUSTER_METADATA", namespace=b"cluster", timeout=_PROBE_TIMEOUT_S
    )
    return client, json.loads(found or b"{}")


def _describe(client: Any, versions: dict[str, Any]) -> dict[str, Any]:
    nodes = [
        {
            "address": node.node_manager_address,
            "is_head": bool(node.is_head_node),
            "alive": node.state == 0,
            "labels": dict(node.labels),
        }
        for node in client.get_all_node_info(timeout=_PROBE_TIMEOUT_S).values()
    ]
    return {
        "ray": str(versions.get("ray_version", "?")),
        "python": str(versions.get("python_version", "?")),
        "nodes": nodes,
    }
