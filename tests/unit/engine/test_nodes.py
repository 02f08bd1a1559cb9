"""What a queue says of its nodes: whoever reads the daemon's notices knows which are there."""

from __future__ import annotations

from stoker.engine.nodes import Nodes
from stoker.engine.vista import Vista
from stoker.executors.fleet import FleetExecutor
from stoker.executors.node import Ahead, Away, Introduction, Joined, NodeSlot, Parted
from unit.engine.world import World

_FACTS = Introduction(
    id="n1",
    name="h1",
    version="1",
    address="",
    labels={},
    slots=(NodeSlot(("0",), ("GPU-0",)),),
    gpus={},
)


class Fleet(FleetExecutor):
    """Only knows what nodes are called."""

    def __init__(self) -> None:
        pass

    def know(self, node: str, name: str) -> str:
        return name


class Notices(list[str]):
    """What was said, without what follows a colon."""

    def __call__(self, text: str) -> None:
        self.append(text.partition(": ")[0])


def nodes_of(world: World) -> tuple[Nodes, Notices]:
    """What a daemon knows of nodes when it begins."""
    notices = Notices()
    engine = world.engine
    nodes = Nodes(engine, world.hub.database, Vista(engine.board), Fleet(), notices)
    nodes.remember()
    return nodes, notices


def test_a_change_is_told_once(world: World) -> None:
    nodes, notices = nodes_of(world)
    for news in (Joined(_FACTS), Joined(_FACTS), Away("h1", "x"), Away("h1", "y"), Joined(_FACTS)):
        nodes.apply(news)
    there = "h1 is there, with 1 GPU"
    assert notices == [there, "h1 is away", there]


def test_the_next_daemon_says_of_a_node_that_does_not_answer_that_it_is_away(world: World) -> None:
    nodes, _notices = nodes_of(world)
    nodes.apply(Joined(_FACTS))
    world.restart()
    nodes, notices = nodes_of(world)
    assert notices == []  # it may have been told of the node by the next moment
    nodes.apply(Away("h1", "it has not answered yet"))
    nodes.apply(Parted("h1", "its lease is out"))
    assert notices == ["h1 is away"]


def test_a_clock_that_is_wrong_is_told(world: World) -> None:
    nodes, notices = nodes_of(world)
    nodes.apply(Joined(_FACTS, Ahead(1.0, 4)))
    assert notices == ["h1 is there, with 1 GPU"]
    nodes.apply(Away("h1", "x"))
    nodes.apply(Joined(_FACTS, Ahead(1.0, -3600)))
    assert notices[-1] == "the clock of h1 is 1:00:00 ahead of this machine's"
