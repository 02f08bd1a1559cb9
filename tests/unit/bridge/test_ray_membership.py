"""Which of the nodes that Ray finds get a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stoker import __version__
from stoker.bridge import ray_membership as module
from stoker.bridge.agent_calls import AgentLike
from stoker.bridge.node_session import NodeSession
from stoker.bridge.ray_membership import RayMembership
from stoker.executors.node_reports import Introduction, News, Told

_PATIENCE_S = 10.0


class FakePost(NodeSession):
    """Minds a node for ever, and counts how often it began to."""

    def __init__(self) -> None:
        self.minded: list[str] = []

    async def mind(self, agent: AgentLike, introduction: Introduction) -> None:
        self.minded.append(introduction.address)
        await asyncio.Event().wait()


class Cluster(RayMembership):
    """Boxes that Ray finds, by their address, each with the id of the Stoker on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **boxes: str) -> None:
        self.told: list[News] = []
        self.post = FakePost()
        self.boxes = boxes
        self.asked: list[str] = []
        super().__init__("q", "", lambda _node, _name: self.post, self.told.append)
        monkeypatch.setattr(module, "_living_nodes", self._living_nodes)
        for pause in ("_LOOK_S", "_RETRY_S", "_MEETING_S"):
            monkeypatch.setattr(module, pause, 0.001)
        monkeypatch.setattr(module, "patiently", lambda ask, _patience_s: ask())

    def _living_nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "own"}, *(self._node(address) for address in self.boxes)]

    def _node(self, address: str) -> dict[str, Any]:
        return {"NodeID": f"ray-{address}", "NodeManagerAddress": address}

    async def _join(self) -> str:
        return "own"

    def _appoint(self, node: dict[str, Any]) -> Any:
        address = node["NodeManagerAddress"]
        self.asked.append(address)
        facts = Introduction(
            id=self.boxes[address], name="gpu2", version=__version__, address=address
        )

        async def introduce() -> bytes:
            return msgspec.json.encode(facts)

        return SimpleNamespace(introduce=SimpleNamespace(remote=introduce))

    def run_until(self, *facts: Callable[[], object]) -> None:
        """Look who is there until each of these has been so, one after the other."""
        asyncio.run(asyncio.wait_for(self._run_until(facts), _PATIENCE_S))

    async def _run_until(self, facts: tuple[Callable[[], object], ...]) -> None:
        looks = asyncio.ensure_future(self.run())
        for fact in facts:
            while not fact():
                assert not looks.done()
                await asyncio.sleep(0.001)


def test_of_two_living_boxes_with_one_id_the_first_is_minded_and_the_other_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def have_a_twin() -> bool:
        cluster.boxes["b"] = "n1"
        return True

    cluster.run_until(
        lambda: cluster.post.minded, have_a_twin, lambda: cluster.asked.count("b") > 2
    )
    assert cluster.post.minded == ["a"]
    (told,) = cluster.told
    assert isinstance(told, Told)
    assert told.text == (
        "the box at b has the id of gpu2, at a, as a copy of its home would: it gets no jobs;"
        " stoker cluster leave and join, on it, give it an id of its own"
    )


def test_a_box_that_has_another_address_now_is_minded_once_ray_knows_the_old_one_to_be_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def move() -> bool:
        cluster.boxes = {"b": "n1"}
        return True

    cluster.run_until(lambda: cluster.post.minded, move, lambda: "b" in cluster.post.minded)
    assert cluster.told == []


def test_a_node_that_was_forgotten_and_is_there_is_met_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a="n1")

    def forget() -> bool:
        cluster.forget("n1")
        cluster.forget("n2")
        return True

    cluster.run_until(lambda: cluster.post.minded, forget, lambda: len(cluster.post.minded) == 2)
