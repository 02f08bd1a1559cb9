"""Orders of the daemon to the bridge: one line of JSON each."""

from __future__ import annotations

import msgspec


class KnownNodes(msgspec.Struct, frozen=True, tag="known"):
    """The first order: ids and names of the nodes on record, the length of a lease, and sync.limit."""

    nodes: tuple[tuple[str, str], ...]
    lease_s: float
    sync_limit_bytes: int


class WatchGpus(msgspec.Struct, frozen=True, tag="watch"):
    """Whether nodes without jobs sample their GPUs too."""

    wanted: bool


class ConnectNode(msgspec.Struct, frozen=True, tag="stream"):
    """Turn this connection into a stream to the supervisor of a node."""

    node: str


class ForgetNode(msgspec.Struct, frozen=True, tag="forget"):
    """End the session with a node."""

    node: str


class StopBridge(msgspec.Struct, frozen=True, tag="stop"):
    """End the bridge. Jobs on nodes go on until their leases expire."""


BridgeOrder = KnownNodes | WatchGpus | ConnectNode | ForgetNode | StopBridge
BRIDGE_ORDERS: msgspec.json.Decoder[BridgeOrder] = msgspec.json.Decoder(BridgeOrder)
