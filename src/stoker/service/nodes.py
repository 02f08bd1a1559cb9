"""`nodes`: shows the machines of the cluster, drains and forgets them."""

from __future__ import annotations

from collections import Counter

from stoker import __version__
from stoker.core.node import NodeFacts
from stoker.engine.context import QueueContext
from stoker.errors import ConflictError, NotFoundError
from stoker.wire import NodeInfo, NodeOrder


def read_nodes(context: QueueContext) -> list[NodeInfo]:
    """Return every node of the cluster, this machine first; an empty list without a cluster."""
    slot_table, nodes = context.engine.slot_table, context.nodes
    if nodes is None:
        return []
    head_address = (context.config.ray_address or "").rpartition(":")[0]
    jobs = Counter(running.where or slot_table.head for running in slot_table.running.values())
    found = []
    for name, facts in slot_table.nodes.items():
        known = nodes.known.get(name)
        slot_states = [
            slot_state
            for slot_state in slot_table.by_node.get(name, ())
            if slot_state.whole_slot is None
        ]
        found.append(
            NodeInfo(
                name=name,
                id="" if known is None else known.id,
                address=head_address if known is None else known.address,
                is_head=name == slot_table.head,
                state="up" if facts.away is None else "away",
                version=__version__ if known is None else known.version,
                labels=dict(facts.labels),
                gpus=sum(len(slot_state.slot.gpus) for slot_state in slot_states),
                jobs=jobs[name],
                away=facts.away,
                since=facts.since,
                drained=facts.drained,
                lacks=facts.lacks,
            )
        )
    return sorted(found, key=lambda node: (not node.is_head, node.name))


def change_nodes(context: QueueContext, order: NodeOrder) -> list[NodeInfo]:
    """Forget a node that does not come back, once no job can run there; or drain one, or end that."""
    slot_table, known = context.engine.slot_table, context.nodes
    facts = slot_table.nodes.get(order.node)
    # A drained node may have left: it would still be drained when it joins again.
    has_left = known is not None and order.action == "undrain" and known.is_drained(order.node)
    if known is None or (facts is None and not has_left):
        there = ", ".join(sorted(slot_table.nodes)) or "no cluster"
        raise NotFoundError(f"there is no node {order.node!r}; there is: {there}")
    if order.action == "forget":
        assert facts is not None
        _check_forget(context, facts, force=order.force)
    elif order.node == slot_table.head:
        raise ConflictError(
            f"{order.node} is this machine: stoker gpus drain takes its GPUs out of use"
        )
    with context.database.transaction(durable=True):
        known.drain(order.node, order.reason if order.action == "drain" else None)
        if order.action == "forget":
            known.forget(order.node)
    context.driver.poke()
    return read_nodes(context)


def _check_forget(context: QueueContext, facts: NodeFacts, *, force: bool) -> None:
    """Raise ConflictError unless a node is gone, and no job can run there."""
    slot_table, name = context.engine.slot_table, facts.name
    if name == slot_table.head:
        raise ConflictError(f"{name} is this machine: stoker cluster leave ends the cluster")
    if facts.away is None:
        raise ConflictError(f"{name} is there: stoker cluster leave, on it, takes it out")
    running = context.engine.attempts_on(name)
    if force or not running:
        return
    if all(each.finishes_alone for each in running):
        jobs = ", ".join(str(each.attempt.job) for each in running)
        raise ConflictError(
            f"job {jobs} may run to its end on {name} (--on-cut finish): if {name} is off,"
            f" stoker cluster forget {name} --force runs it elsewhere"
        )
    raise ConflictError(
        f"jobs may still run on {name}: they are given up when its lease is out, and then it can be"
        f" forgotten; if it is off, stoker cluster forget {name} --force gives them up now"
    )
