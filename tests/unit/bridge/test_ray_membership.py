"""Which of the nodes that Ray finds get a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stoker import __version__
from stoker.bridge import ray_membership as module
from stoker.bridge.agent_client import AgentClient
from stoker.bridge.agent_messages import encode
from stoker.bridge.node_session import NodeSession
from stoker.bridge.ray_membership import RayMembership
from stoker.cluster import ray_api
from stoker.cluster.protocol import PROTOCOL
from stoker.cluster.ray_api import RayNode
from stoker.executors.node_reports import Introduction, NodeReport, Notice

_PATIENCE_S = 10.0


class FakeSession(NodeSession):
    """A session that lasts for ever, and records its nodes."""

    def __init__(self) -> None:
        self.minded: list[str] = []

    async def mind(self, agent: AgentClient, introduction: Introduction) -> None:
        self.minded.append(introduction.address)
        await asyncio.Event().wait()


class Cluster(RayMembership):
    """Boxes that Ray finds, by their address, each with the id of the Stoker on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **boxes: str) -> None:
        self.told: list[NodeReport] = []
        self.session = FakeSession()
        self.boxes = boxes
        self.protocol = PROTOCOL
        self.asked: list[str] = []
        super().__init__("q", "", lambda _node, _name: self.session, self.told.append)
        monkeypatch.setattr(ray_api, "list_live_nodes", self._list_live_nodes)
        for pause in ("_LOOK_S", "_RETRY_S"):
            monkeypatch.setattr(module, pause, 0.001)
        monkeypatch.setattr(module, "_VERSION_RETRY_S", 0.001)

    def _list_live_nodes(self) -> list[RayNode]:
        others = [RayNode(f"ray-{address}", address, address, 0) for address in self.boxes]
        return [RayNode("own", "", "", 0), *others]

    async def _join(self) -> str:
        return "own"

    def _find_agent(self, node: RayNode) -> Callable[[bytes], Awaitable[bytes]]:
        self.asked.append(node.address)
        facts = Introduction(
            id=self.boxes[node.address],
            name="gpu2",
            version="0.0.9",
            protocol=self.protocol,
            address=node.address,
        )

        async def introduce(_request: bytes) -> bytes:
            return encode(facts)

        return introduce

    def run_until(self, *facts: Callable[[], object]) -> None:
        """Look for nodes until each of these has been true, one after the other."""
        asyncio.run(asyncio.wait_for(self._run_until(facts), _PATIENCE_S))

    async def _run_until(self, facts: tuple[Callable[[], object], ...]) -> None:
        looks = asyncio.ensure_future(self.run())
        for fact in facts:
            while not fact():
                assert not looks.done()
                await asyncio.sleep(0.001)


def test_of_two_boxes_with_one_id_the_second_gets_no_session_and_one_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def have_a_twin() -> bool:
        cluster.boxes["b"] = "n1"
        return True

    cluster.run_until(
        lambda: cluster.session.minded, have_a_twin, lambda: cluster.asked.count("b") > 2
    )
    assert cluster.session.minded == ["a"]
    (told,) = cluster.told
    assert isinstance(told, Notice)
    assert told.text == (
        "the box at b has the id of gpu2, at a, as a copy of its home would: it gets no jobs;"
        " stoker cluster leave and join, on it, give it an id of its own"
    )


def test_a_box_with_a_new_address_gets_a_session_once_its_old_address_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def move() -> bool:
        cluster.boxes = {"b": "n1"}
        return True

    cluster.run_until(lambda: cluster.session.minded, move, lambda: "b" in cluster.session.minded)
    assert cluster.told == []


def test_a_forgotten_node_that_is_there_gets_a_new_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def forget() -> bool:
        cluster.forget("n1")
        cluster.forget("n2")
        return True

    cluster.run_until(
        lambda: cluster.session.minded, forget, lambda: len(cluster.session.minded) == 2
    )


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        (
            PROTOCOL - 2,
            f"install Stoker {__version__} there, and run stoker cluster join again on it",
        ),
        (PROTOCOL + 1, "install Stoker 0.0.9 on the head, and run stoker daemon restart"),
    ],
)
def test_a_node_whose_messages_are_too_old_or_too_new_gets_no_jobs_and_one_notice(
    monkeypatch: pytest.MonkeyPatch, protocol: int, remedy: str
) -> None:
    cluster = Cluster(monkeypatch, a="n1")
    cluster.protocol = protocol

    cluster.run_until(lambda: cluster.asked.count("a") > 2)

    assert cluster.session.minded == []
    (told,) = cluster.told
    assert isinstance(told, Notice)
    assert told.text == (
        f"gpu2 has Stoker 0.0.9, and the head {__version__}, which do not understand each other:"
        f" it gets no jobs; {remedy}"
    )


def test_a_node_of_the_last_version_of_the_messages_gets_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")
    cluster.protocol = PROTOCOL - 1

    cluster.run_until(lambda: cluster.session.minded)

    assert cluster.told == []
