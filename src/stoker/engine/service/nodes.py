"""`cluster`: the machines that the queue reaches over."""

from __future__ import annotations

from collections import Counter

from stoker import __version__
from stoker.engine.hub import Hub
from stoker.errors import ConflictError, NotFoundError
from stoker.wire import NodeInfo, NodeOrder


def read(hub: Hub) -> list[NodeInfo]:
    """Every node, this machine first; none where there is no cluster."""
    board, nodes = hub.engine.board, hub.engine.nodes
    if nodes is None:
        return []
    head_address = (hub.config.ray_address or "").rpartition(":")[0]
    jobs = Counter(running.where or board.head for running in board.running.values())
    found = []
    for name, facts in board.nodes.items():
        known = nodes.known.get(name)
        places = [place for place in board.of_node.get(name, ()) if place.base is None]
        found.append(
            NodeInfo(
                name=name,
                id="" if known is None else known.id,
                address=head_address if known is None else known.address,
                is_head=name == board.head,
                state="up" if facts.away is None else "away",
                version=__version__ if known is None else known.version,
                labels=dict(facts.labels),
                gpus=sum(len(place.slot.gpus) for place in places),
                jobs=jobs[name],
                away=facts.away,
                since=facts.since,
            )
        )
    return sorted(found, key=lambda node: (not node.is_head, node.name))


def nodes(hub: Hub, order: NodeOrder) -> list[NodeInfo]:
    """Forget a node that is away, once nothing of the queue can be running there."""
    board, known = hub.engine.board, hub.engine.nodes
    facts = board.nodes.get(order.node)
    if known is None or facts is None:
        there = ", ".join(sorted(board.nodes)) or "no cluster"
        raise NotFoundError(f"there is no node {order.node!r}; there is: {there}")
    if order.node == board.head:
        raise ConflictError(f"{order.node} is this machine: stoker cluster leave ends the cluster")
    if facts.away is None:
        raise ConflictError(f"{order.node} is there: stoker cluster leave, on it, takes it out")
    if any(running.where == order.node for running in board.running.values()):
        raise ConflictError(
            f"jobs may still run on {order.node}: they are given up when its lease is out, and then it"
            " can be forgotten"
        )
    known.forget(order.node)
    hub.pulse.poke()
    return read(hub)
