"""Nodes of a cluster: shown, drained and forgotten."""

from __future__ import annotations

import msgspec
import pytest

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.errors import ConflictError, NotFoundError
from stoker.executors.node_reports import Joined, Left
from stoker.service.nodes import change_nodes, read_nodes
from stoker.wire import NodeInfo, NodeOrder
from unit.engine.cluster_harness import Cluster
from unit.engine.engine_harness import MakeHarness


@pytest.fixture
def cluster(make_harness: MakeHarness) -> Cluster:
    slots = tuple(Slot(n - 1, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in (1, 2))
    harness = make_harness(gpus=slots, nodes=tuple(NodeFacts(f"h{n}") for n in range(3)))
    return Cluster(harness)


def change(
    cluster: Cluster, action: str, node: str, reason: str = "", *, force: bool = False
) -> None:
    order = msgspec.convert(
        {"action": action, "node": node, "reason": reason, "force": force}, NodeOrder
    )
    change_nodes(cluster.harness.context, order)
    cluster.harness.settle()


def show(cluster: Cluster, name: str) -> NodeInfo:
    return next(node for node in read_nodes(cluster.harness.context) if node.name == name)


def test_a_drained_node_that_has_left_can_be_undrained_before_it_joins_again(
    cluster: Cluster,
) -> None:
    change(cluster, "drain", "h1", "new disk")
    cluster.report(Left("h1"))
    change(cluster, "undrain", "h1")
    with pytest.raises(NotFoundError):
        change(cluster, "undrain", "h1")


def test_nothing_starts_on_a_drained_node_and_its_jobs_go_on(cluster: Cluster) -> None:
    harness = cluster.harness
    harness.add("train", nodes=["h1"])
    change(cluster, "drain", "h1", "new disk")
    assert cluster.running() == {"1.1": "h1"}
    harness.end("1.1")
    harness.add("train", nodes=["h1"])
    harness.add("evaluate", gpus=0, nodes=["h1"])
    harness.add("train")
    assert cluster.running() == {"4.1": "h2"}
    assert "GPU h1/0 belongs to a node that is drained (new disk)" in harness.why(2)
    assert "node h1 is drained (new disk)" in harness.why(3)
    assert (show(cluster, "h1").state, show(cluster, "h1").drained) == ("up", "new disk")
    change(cluster, "undrain", "h1")
    assert cluster.running() == {"2.1": "h1", "3.1": "h1", "4.1": "h2"}
    assert show(cluster, "h1").drained is None


def test_a_drain_lasts_over_restarts_and_until_the_node_is_back(cluster: Cluster) -> None:
    facts = cluster.nodes.known["h1"]
    change(cluster, "drain", "h1")
    cluster.harness.restart()
    cluster.begin()
    cluster.report(Joined(facts), Left("h1"), Joined(facts))
    assert show(cluster, "h1").drained == ""
    cluster.harness.add("train", nodes=["h1"])
    assert cluster.running() == {}


def test_this_machine_is_not_drained_as_a_node(cluster: Cluster) -> None:
    with pytest.raises(ConflictError, match="stoker gpus drain takes its GPUs out of use"):
        change(cluster, "drain", "h0")


def test_a_node_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="there is no node 'h9'; there is: h0, h1, h2"):
        change(cluster, "drain", "h9")


@pytest.mark.parametrize("reason", ["a\nb", "\x1b[31m", "x" * 201])
def test_a_reason_is_one_line_of_text(cluster: Cluster, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        change(cluster, "drain", "h1", reason)


def test_a_node_that_is_there_is_not_forgotten(cluster: Cluster) -> None:
    for force in (False, True):
        with pytest.raises(ConflictError, match="h1 is there: stoker cluster leave"):
            change(cluster, "forget", "h1", force=force)


def test_a_node_whose_jobs_may_run_is_forgotten_only_by_force(cluster: Cluster) -> None:
    cluster.harness.add("train")
    cluster.report(cluster.away())
    with pytest.raises(ConflictError, match="stoker cluster forget h1 --force gives them up now"):
        change(cluster, "forget", "h1")
    change(cluster, "forget", "h1", force=True)
    assert cluster.running() == {"1.2": "h2"}
    assert "h1" not in cluster.nodes.known


def test_a_job_that_finishes_alone_keeps_its_node_until_that_is_forgotten_by_force(
    cluster: Cluster,
) -> None:
    cluster.harness.add("train", on_cut="finish")
    cluster.cut()
    with pytest.raises(ConflictError, match=r"job 1 may run to its end on h1 .*forget h1 --force"):
        change(cluster, "forget", "h1")
    change(cluster, "forget", "h1", force=True)
    assert cluster.running() == {"1.2": "h2"}


def test_a_node_that_was_forgotten_is_not_drained_when_it_joins_again(cluster: Cluster) -> None:
    facts = cluster.nodes.known["h1"]
    change(cluster, "drain", "h1", "old")
    cluster.cut()
    change(cluster, "forget", "h1")
    cluster.report(Joined(facts))
    assert show(cluster, "h1").drained is None
