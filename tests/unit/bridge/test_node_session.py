"""From when on the head may take the jobs of a node that does not answer for ended."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.bridge import node_session as module
from stoker.bridge.agent_calls import AgentLostError
from stoker.bridge.node_session import NodeSession
from stoker.executors.node_reports import Ahead, Away, Introduction, Joined, Leaving, News, Parted

FACTS = Introduction(id="n1", name="h1", version="1")


class Clock:
    """The head's boot clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "boot_s", lambda: self.now_s)
        monkeypatch.setattr(module, "_BEAT_S", 0.0)


class FakeAgent:
    """Answers so many beats, each with a stamp of its own, and then never again."""

    def __init__(self, beats: int, behind_s: float = 0.0, leave: str = "") -> None:
        self._left = beats
        self.echoes: list[float | None] = []
        self.behind_s = behind_s
        self.leave = leave

    async def beat(
        self, echo: float | None, _lease_s: float, _wanted: bool
    ) -> tuple[float, float, bytes, str]:
        self.echoes.append(echo)
        self._left -= 1
        if self._left < 0:
            raise ConnectionError("gone")
        return float(len(self.echoes)), time.time() - self.behind_s, b"null", self.leave

    async def open(self, _conversation: str) -> None:
        self.said = b""

    async def write(self, _conversation: str, data: bytes) -> bool:
        self.said += data
        return True

    async def read(self, _conversation: str) -> None:
        return None

    async def close(self, _conversation: str) -> None:
        pass


def mind(post: NodeSession, agent: FakeAgent) -> None:
    async def until_gone() -> None:
        with pytest.raises(AgentLostError):
            await post.mind(agent, FACTS)  # type: ignore[arg-type]

    asyncio.run(until_gone())
    post.lose("gone")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make_post(notes: str = "/nowhere") -> tuple[NodeSession, list[News]]:
    told: list[News] = []
    return NodeSession("n1", "h1", told.append, 30.0, notes), told


class Nobody:
    """A daemon that does not listen."""

    def write(self, _data: bytes) -> None:
        pass


def come_back(post: NodeSession) -> bytes:
    """Let the node be there again, and a daemon begin to speak with it; what the node hears first."""
    agent = FakeAgent(beats=2)
    mind(post, agent)

    async def speak() -> None:
        await post.carry(asyncio.StreamReader(), Nobody())  # type: ignore[arg-type]

    asyncio.run(speak())
    return agent.said


def test_a_node_is_there_once_it_has_been_granted_a_lease(clock: Clock) -> None:
    post, told = make_post()
    agent = FakeAgent(beats=2)
    mind(post, agent)
    assert agent.echoes == [None, 1.0, 2.0]
    assert told == [Joined(FACTS, Ahead(1000.0 - 2.0)), Away("n1", "gone")]


def test_what_time_it_is_on_the_node_is_told(clock: Clock) -> None:
    post, told = make_post()
    mind(post, FakeAgent(beats=2, behind_s=3600.3))
    assert told[0] == Joined(FACTS, Ahead(1000.0 - 2.0, 3600))


def test_an_answer_that_takes_long_says_little_of_the_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, told = make_post()
    agent = FakeAgent(beats=2)
    answer = agent.beat

    async def beat_late(*details: Any) -> Any:
        found = await answer(*details)
        clock.now_s += 4.0 * len(agent.echoes)
        return found

    monkeypatch.setattr(agent, "beat", beat_late)
    monkeypatch.setattr(agent, "behind_s", 2.5)
    mind(post, agent)
    # By the first, which was asked at 1000 and answered at 1004.
    assert told[0] == Joined(FACTS, Ahead(1002.0 - 1.0, 0))


def test_a_node_that_leaves_is_told_once_and_is_there_again_if_it_thinks_better_of_it(
    clock: Clock,
) -> None:
    post, told = make_post()
    mind(post, FakeAgent(beats=2))
    mind(post, FakeAgent(beats=3, leave="leaving"))
    assert told[2:] == [Leaving("n1")]
    post.retell()
    assert told[3:] == [Leaving("n1")]
    mind(post, FakeAgent(beats=2))
    assert isinstance(told[4], Joined)


def test_nothing_is_given_up_before_the_lease_has_surely_run_out(clock: Clock) -> None:
    post, told = make_post()
    clock.now_s += 100
    mind(post, FakeAgent(beats=2))
    told.clear()
    for later_s, parted in ((29.0, 0), (2.9, 0), (0.2, 1), (50.0, 1)):
        clock.now_s += later_s
        post.check_lease()
        assert sum(isinstance(news, Parted) for news in told) == parted


def test_a_lease_that_is_made_shorter_lasts_for_as_long_as_it_was_granted(clock: Clock) -> None:
    post, told = make_post()
    mind(post, FakeAgent(beats=2))
    post.lease_s = 10.0
    mind(post, FakeAgent(beats=2))
    clock.now_s += 20
    post.check_lease()
    assert not any(isinstance(news, Parted) for news in told)
    clock.now_s += 13
    post.check_lease()
    assert any(isinstance(news, Parted) for news in told)


def test_a_bridge_that_is_new_waits_for_a_whole_lease(clock: Clock) -> None:
    post, told = make_post()
    clock.now_s += 31
    post.check_lease()
    assert told == []
    clock.now_s += 2
    post.check_lease()
    assert len(told) == 1


class TestGivingUp:
    """What was started on a node may be running elsewhere once a daemon has heard that it parted."""

    def part(self, clock: Clock, notes: Path) -> NodeSession:
        post, _told = make_post(str(notes))
        mind(post, FakeAgent(beats=2))
        clock.now_s += 40
        post.check_lease()
        return post

    def test_a_node_is_told_when_it_is_back_and_only_then(
        self, clock: Clock, tmp_path: Path
    ) -> None:
        post = self.part(clock, tmp_path)
        assert come_back(post) == b'[["logs"]]\n'
        assert come_back(post) == b""

    def test_so_it_is_after_a_daemon_that_came_while_it_was_away(
        self, clock: Clock, tmp_path: Path
    ) -> None:
        post = self.part(clock, tmp_path)
        post.retell()
        assert come_back(post) == b'[["logs"]]\n'

    def test_a_daemon_that_has_not_heard_of_it_waits_for_what_ran(
        self, clock: Clock, tmp_path: Path
    ) -> None:
        post = self.part(clock, tmp_path)
        mind(post, FakeAgent(beats=2))
        post.retell()
        assert come_back(post) == b""
