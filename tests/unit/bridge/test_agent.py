"""What a head can ask of a node, whatever state the node is in."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.bridge import agent as module
from stoker.bridge.agent import Agent
from stoker.bridge.agent_calls import LEAVING, LEFT
from stoker.cluster.settings import leaving_path
from stoker.supervisor import lease_file
from stoker.supervisor.lease_file import read
from stoker.supervisor.messages import CutAttempt


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr("stoker.bridge.agent.Nvml.open", lambda: None)
    return Agent("queue")


@pytest.fixture
def stuck(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """A driver that does not answer until the test is over; a list of all who asked it."""
    asked: list[bool] = []
    over = threading.Event()

    def see(*, wanted: bool) -> None:
        asked.append(wanted)
        over.wait()

    monkeypatch.setattr(agent._node_gpu_monitor, "see", see)
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    yield asked
    over.set()


def test_a_driver_that_hangs_holds_up_no_beat_and_is_asked_once(
    agent: Agent, stuck: list[bool], tmp_path: Path
) -> None:
    async def beat_twice() -> None:
        stamp, _time, seen, leave = await agent.beat(None, 30.0, True)
        assert (seen, leave) == (b"null", "")
        await agent.beat(stamp, 30.0, True)
        assert read(str(tmp_path / "cluster/queues/queue/lease_file")) == pytest.approx(stamp + 30)

    asyncio.run(beat_twice())
    assert stuck == [True]


@pytest.mark.parametrize("next_one", [None, 8])
def test_an_agent_ends_with_the_ray_supervisor_of_its_ray_whoever_minds_the_box_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_one: int | None
) -> None:
    class EndedError(Exception):
        pass

    def end(code: int) -> None:
        assert code == 0
        raise EndedError

    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr("stoker.bridge.agent.Nvml.open", lambda: None)
    monkeypatch.setattr("os._exit", end)
    ray_supervisor: list[int | None] = [7]
    monkeypatch.setattr(module, "ray_supervisor_pid", lambda _home: ray_supervisor[0])
    agent = Agent("queue")
    assert asyncio.run(agent.beat(None, 30.0, False))[3] == ""

    ray_supervisor[0] = next_one
    with pytest.raises(EndedError):
        asyncio.run(agent.beat(None, 30.0, False))


def test_a_node_that_leaves_ends_nothing_before_the_head_has_heard_of_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[CutAttempt] = []

    class Proxy:
        running: tuple[str, ...] = ("7.1",)

        async def send(self, orders: list[CutAttempt]) -> None:
            sent.extend(orders)

    proxy = Proxy()
    monkeypatch.setattr(agent, "_proxy", proxy)
    leaving = Path(leaving_path(str(tmp_path)))
    leaving.touch()

    async def beat() -> str:
        return (await agent.beat(None, 30.0, False))[3]

    async def story() -> None:
        assert await beat() == LEAVING
        assert sent == []
        assert await beat() == LEAVING
        assert sent.pop() == CutAttempt("7.1", lease_file.LEFT)
        proxy.running = ()
        assert await beat() == LEFT
        assert not leaving.exists()
        assert await beat() == ""
        leaving.touch()
        assert await beat() == LEAVING

    asyncio.run(story())
    assert sent == []


def test_what_was_shipped_is_pruned_while_the_agent_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_KEEP_BYTES", 0)
    monkeypatch.setattr(module, "_PRUNE_PERIOD_S", 0.0)

    async def story() -> None:
        agent = Agent("q")
        for name in ("one", "two"):
            blob = tmp_path / "cluster" / "queues" / "q" / "node_cache" / "blobs" / name
            blob.write_text(name)
            os.utime(blob, (1, 1))
            assert await agent.node_cache("missing", b"") == (True, [])
            assert agent._pruning is not None
            await agent._pruning
            assert not blob.exists()

    asyncio.run(story())
