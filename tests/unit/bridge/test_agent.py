"""Agent: heartbeats, leaving, and the node cache."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.bridge import agent as module
from stoker.bridge.agent import Agent
from stoker.bridge.agent_client import AgentClient
from stoker.bridge.agent_messages import (
    CacheFailure,
    CloseStream,
    Collect,
    DeleteCopy,
    Departure,
    Fetch,
    FindMissing,
    Heartbeat,
    Introduce,
    LayOut,
    PutPieces,
    ReadReports,
    WriteOrders,
)
from stoker.cluster.settings import leaving_path, load_node
from stoker.home import find_home
from stoker.staging.manifest import TreeManifest
from stoker.staging.node_cache import CollectedResults, Piece, WorkingCopy
from stoker.supervisor import lease_file
from stoker.supervisor.lease_file import read
from stoker.supervisor.messages import CutAttempt


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr("stoker.bridge.agent.open_driver", lambda: None)
    return Agent("queue")


@pytest.fixture
def stuck(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """A driver that does not answer until the test is over; returns the list of its calls."""
    asked: list[bool] = []
    over = threading.Event()

    def sample(*, wanted: bool) -> None:
        asked.append(wanted)
        over.wait()

    monkeypatch.setattr(agent._node_gpu_monitor, "sample", sample)
    monkeypatch.setattr(module, "_SAMPLE_TIMEOUT_S", 0.01)
    yield asked
    over.set()


def test_a_driver_that_hangs_delays_no_heartbeat_and_is_asked_once(
    agent: Agent, stuck: list[bool], tmp_path: Path
) -> None:
    async def beat_twice() -> None:
        reply = await agent.beat(Heartbeat(None, 30.0, True))
        assert (reply.sample, reply.departure) == (None, Departure.NONE)
        await agent.beat(Heartbeat(reply.stamp_s, 30.0, True))
        until_s = read(str(tmp_path / "cluster/queues/queue/lease_file"))
        assert until_s == pytest.approx(reply.stamp_s + 30)

    asyncio.run(beat_twice())
    assert stuck == [True]


@pytest.mark.parametrize("next_one", [None, 8])
def test_an_agent_ends_when_the_ray_supervisor_that_started_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_one: int | None
) -> None:
    class EndedError(Exception):
        pass

    def end(code: int) -> None:
        assert code == 0
        raise EndedError

    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr("stoker.bridge.agent.open_driver", lambda: None)
    monkeypatch.setattr("os._exit", end)
    ray_supervisor: list[int | None] = [7]
    monkeypatch.setattr(module, "ray_supervisor_pid", lambda _home: ray_supervisor[0])
    agent = Agent("queue")
    beat = Heartbeat(None, 30.0, False)
    assert asyncio.run(agent.beat(beat)).departure is Departure.NONE

    ray_supervisor[0] = next_one
    with pytest.raises(EndedError):
        asyncio.run(agent.beat(beat))


def test_a_leaving_node_kills_its_jobs_after_the_head_knows_that_it_leaves(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[CutAttempt] = []

    class Proxy:
        running: tuple[str, ...] = ("7.1",)
        unconfirmed: tuple[str, ...] = ()

        def gpus_of(self, _key: str) -> tuple[str, ...]:
            return ()

        async def send(self, orders: list[CutAttempt]) -> None:
            sent.extend(orders)

    proxy = Proxy()
    monkeypatch.setattr(agent, "_proxy", proxy)
    leaving = Path(leaving_path(str(tmp_path)))
    leaving.touch()

    async def beat() -> Departure:
        return (await agent.beat(Heartbeat(None, 30.0, False))).departure

    async def leave() -> None:
        assert await beat() is Departure.LEAVING
        assert sent == []
        assert await beat() is Departure.LEAVING
        assert sent.pop() == CutAttempt("7.1", lease_file.LEFT)
        proxy.running, proxy.unconfirmed = (), ("7.1",)
        assert await beat() is Departure.LEAVING
        assert sent == []
        proxy.unconfirmed = ()
        assert await beat() is Departure.LEFT
        assert not leaving.exists()
        assert await beat() is Departure.NONE
        leaving.touch()
        assert await beat() is Departure.LEAVING

    asyncio.run(leave())
    assert sent == []


def test_the_agent_prunes_the_node_cache_every_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_KEEP_BYTES", 0)
    monkeypatch.setattr(module, "_PRUNE_PERIOD_S", 0.0)

    async def prune_twice() -> None:
        agent = Agent("q")
        for name in ("one", "two"):
            blob = tmp_path / "cluster" / "queues" / "q" / "node_cache" / "blobs" / name
            blob.write_text(name)
            os.utime(blob, (1, 1))
            assert await agent.call_cache(FindMissing(b"")) == []
            assert agent._pruning is not None
            await agent._pruning
            assert not blob.exists()

    asyncio.run(prune_twice())


def test_requests_and_replies_are_encoded_on_both_ways(agent: Agent) -> None:
    async def call_all() -> None:
        client = AgentClient(agent.call)
        assert (await client.call(Introduce(), None)).name == load_node(find_home()).name
        reply = await client.call(Heartbeat(None, 30.0, False), None)
        assert (reply.sample, reply.departure) == (None, Departure.NONE)
        assert await client.call(WriteOrders("no such stream", [b"[]"]), None) is False
        assert await client.call(ReadReports("no such stream"), None) is None
        await client.call(CloseStream("no such stream"), None)
        manifest = TreeManifest(()).encoded
        assert await client.call(FindMissing(manifest), None) == []
        copy = await client.call(LayOut(manifest, "1.1"), None)
        assert isinstance(copy, WorkingCopy)
        assert copy.folder is not None
        pieces = [Piece(hashlib.sha256(b"x").hexdigest(), 1, 0, b"x")]
        assert await client.call(PutPieces(pieces), None) == [1]
        collected = await client.call(Collect("1.1", b"results", 1), None)
        assert collected == CollectedResults(b"", [], os.path.join(copy.folder, "results"))
        failure = await client.call(Fetch("1.1", "", 0), None)
        assert failure == CacheFailure("copy 1.1 has no results with that digest")
        assert await client.call(Fetch("2.1", "", 0), None) is None
        assert await client.call(DeleteCopy("1.1"), None) is None

    asyncio.run(call_all())
