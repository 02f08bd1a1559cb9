"""What a queue says of its nodes: whoever reads the daemon's notices knows which are there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from stoker.core.node import NodeFacts
from stoker.engine.adoption import revive
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.nodes import Nodes
from stoker.errors import ConflictError, NotFoundError
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.executors.node_reports import (
    Away,
    ClockOffset,
    Introduction,
    Joined,
    LeaseExpired,
    Left,
    NodeReport,
    NodeSlot,
)
from unit.engine.engine_harness import Harness, MakeHarness

_FACTS = Introduction(
    id="n1",
    name="h1",
    version="1",
    address="",
    labels={},
    slots=(NodeSlot(("0",), ("GPU-0",)),),
    gpus={},
)


class Fleet(MultiNodeExecutor):
    """Only knows what nodes are called."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, list[str]]] = []

    def add_node(self, node: str, name: str) -> str:
        return name

    def forget(self, name: str) -> None:
        pass

    def connect(self, name: str, wanted: Sequence[str]) -> None:
        self.connected.append((name, sorted(wanted)))


class Notices(list[str]):
    """What was said, without what follows a colon."""

    def __call__(self, text: str) -> None:
        self.append(text.partition(": ")[0])


def nodes_of(harness: Harness, fleet: Fleet | None = None) -> tuple[Nodes, Notices]:
    """What a daemon knows of nodes when it begins. It takes a turn after each report."""
    notices = Notices()
    engine, context = harness.engine, harness.context

    class NodesWithTurns(Nodes):
        def apply(self, report: NodeReport) -> None:
            super().apply(report)
            harness.settle()

    nodes = NodesWithTurns(
        engine,
        context.database,
        ClusterGpus(engine.slot_table),
        fleet or Fleet(),
        notices,
        lambda attempt: revive(engine, context.jobs, str(harness.home), attempt, harness.now),
    )
    nodes.remember()
    return nodes, notices


def test_a_change_of_a_node_is_reported_once(harness: Harness) -> None:
    nodes, notices = nodes_of(harness)
    for news in (Joined(_FACTS), Joined(_FACTS), Away("h1", "x"), Away("h1", "y"), Joined(_FACTS)):
        nodes.apply(news)
    there = "h1 is there, with 1 GPU"
    assert notices == [there, "h1 is away", there]


def test_after_a_restart_a_silent_node_is_away(
    harness: Harness,
) -> None:
    nodes, _notices = nodes_of(harness)
    nodes.apply(Joined(_FACTS))
    harness.restart()
    nodes, notices = nodes_of(harness)
    assert notices == []  # it may have been told of the node by the next moment
    nodes.apply(Away("h1", "it has not answered yet"))
    nodes.apply(LeaseExpired("h1", "its lease is out"))
    assert notices == ["h1 is away"]


def test_a_wrong_clock_of_a_node_is_reported(harness: Harness) -> None:
    nodes, notices = nodes_of(harness)
    nodes.apply(Joined(_FACTS, ClockOffset(1.0, 4)))
    assert notices == ["h1 is there, with 1 GPU"]
    nodes.apply(Away("h1", "x"))
    nodes.apply(Joined(_FACTS, ClockOffset(1.0, -3600)))
    assert notices[-1] == "the clock of h1 is 1h 00m ahead of this machine's"


def with_gpus(**keys: str) -> Introduction:
    """The same node, when it finds these GPUs: numbers with their keys."""
    slots = tuple(NodeSlot((number[1:],), (key,)) for number, key in keys.items())
    return msgspec.structs.replace(_FACTS, slots=slots)


def usable(harness: Harness) -> dict[str, tuple[str, ...]]:
    """The slots of h1 on which jobs may start, and what GPUs they have."""
    slots = [place.slot for place in harness.engine.slot_table.whole_slots() if place.is_open]
    return {slot.label: slot.keys for slot in slots if slot.node == "h1"}


@pytest.fixture
def head(make_harness: MakeHarness) -> Harness:
    """Return the first box of a cluster, without a GPU of its own."""
    return make_harness(gpus=0, nodes=(NodeFacts("h0"),))


def test_a_node_that_has_left_and_joins_again_has_its_gpus(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    for _ in range(3):
        nodes.apply(Joined(_FACTS))
        assert usable(head) == {"h1/0": ("h1/GPU-0",)}
        nodes.apply(Left("h1"))
        assert usable(head) == {}
    assert len(head.engine.slot_table.states) == 1


def test_gpus_that_a_node_finds_later_than_it_joins_are_used(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    for facts in (_FACTS, with_gpus(), _FACTS):
        nodes.apply(Joined(facts))
    assert usable(head) == {"h1/0": ("h1/GPU-0",)}


def test_another_gpu_with_an_old_number_is_a_new_slot(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    nodes.apply(Joined(with_gpus(n0="GPU-a", n1="GPU-b", n2="GPU-c")))
    nodes.apply(Joined(with_gpus(n0="GPU-a", n1="GPU-c")))
    assert usable(head) == {"h1/0": ("h1/GPU-a",), "h1/1": ("h1/GPU-c",)}


def test_a_drained_slot_is_still_drained_when_its_node_returns(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    both = with_gpus(n0="GPU-a", n1="GPU-b")
    nodes.apply(Joined(both))
    head.gpus("drain", "h1/0")
    nodes.apply(Left("h1"))
    nodes.apply(Joined(both))
    assert usable(head) == {"h1/1": ("h1/GPU-b",)}
    head.gpus("add", "h1/0")
    assert len(usable(head)) == 2


def test_slots_of_a_node_that_left_are_not_recorded_as_removed_by_a_user(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    other = msgspec.structs.replace(_FACTS, id="n2", name="h2")
    nodes.apply(Joined(_FACTS))
    nodes.apply(Joined(other))
    nodes.apply(Left("h1"))
    head.gpus("drain", "h2/0")
    assert head.context.config.words("gpus-removed") == []
    assert head.context.config.words("gpus-drained") == ["h2/0"]


def test_a_gpu_of_a_node_that_has_left_cannot_be_added(head: Harness) -> None:
    nodes, _notices = nodes_of(head)
    nodes.apply(Joined(_FACTS))
    nodes.apply(Left("h1"))
    with pytest.raises(NotFoundError, match="there is no GPU h1/0"):
        head.gpus("add", "h1/0")


def test_the_cluster_cannot_be_left_while_jobs_run_on_its_nodes(head: Harness) -> None:
    head.config("ray.address", "10.0.0.1:7866")
    nodes, _notices = nodes_of(head)
    nodes.apply(Joined(_FACTS))
    head.add(gpus=0)
    head.add()
    for value in ("none", None, "10.0.0.9:7866"):
        with pytest.raises(
            ConflictError, match=r"^jobs run on h1: let them end, or stoker kill them"
        ):
            head.config("ray.address", value)
    head.config("ray.address", "10.0.0.1:7866")  # it is that already
    head.end("2.1")
    head.config("ray.address", None)
    assert head.context.config.ray_address is None
