"""Node session: heartbeats, leases, and giving up the jobs of a node that does not answer."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from stoker.bridge import node_session as module
from stoker.bridge.agent_client import AgentClient, AgentLostError
from stoker.bridge.agent_messages import (
    Departure,
    Heartbeat,
    HeartbeatReply,
    OpenStream,
    WriteOrders,
    decode_request,
    encode,
)
from stoker.bridge.checkpoint_proxy import HeadFiles
from stoker.bridge.node_session import NodeSession
from stoker.executors.node_reports import (
    Away,
    ClockOffset,
    Introduction,
    Joined,
    LeaseExpired,
    Leaving,
    NodeReport,
)

FACTS = Introduction(id="n1", name="h1", version="1")


class Clock:
    """The head's boot clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "boot_clock_s", lambda: self.now_s)
        monkeypatch.setattr(module, "_BEAT_S", 0.0)


class FakeAgent(AgentClient):
    """Answers a number of heartbeats, each with its own stamp, and then none."""

    def __init__(
        self, beats: int, behind_s: float = 0.0, departure: Departure = Departure.NONE
    ) -> None:
        super().__init__(self.serve)
        self._left = beats
        self.echoes: list[float | None] = []
        self.orders: list[bytes] = []
        self.behind_s = behind_s
        self.departure = departure
        self.problem: str | None = None  # why it has no supervisor

    async def serve(self, data: bytes) -> bytes:
        match decode_request(data):
            case Heartbeat() as beat:
                return encode(await self.beat(beat))
            case WriteOrders() as request:
                self.orders += request.lines
                return encode(True)
            case OpenStream():
                return encode(self.problem)
        return encode(None)

    async def beat(self, beat: Heartbeat) -> HeartbeatReply:
        self.echoes.append(beat.echo_s)
        self._left -= 1
        if self._left < 0:
            raise ConnectionError("gone")
        stamp_s, time_s = float(len(self.echoes)), time.time() - self.behind_s
        return HeartbeatReply(stamp_s, time_s, departure=self.departure)


def mind(session: NodeSession, agent: FakeAgent) -> None:
    async def until_gone() -> None:
        with pytest.raises(AgentLostError):
            await session.mind(agent, FACTS)

    asyncio.run(until_gone())
    session.lose("gone")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make_session(notes: str = "/nowhere") -> tuple[NodeSession, list[NodeReport]]:
    told: list[NodeReport] = []
    files = HeadFiles(transfers=notes, checkpoints="/nowhere", limit_bytes=0)
    return NodeSession("n1", "h1", told.append, 30.0, files), told


class IgnoringWriter:
    """A daemon's connection that discards everything."""

    def write(self, _data: bytes) -> None:
        pass


def carry(session: NodeSession) -> None:
    """Let a daemon open a stream, until it ends."""

    async def open_stream() -> None:
        await session.carry(asyncio.StreamReader(), IgnoringWriter())  # type: ignore[arg-type]

    asyncio.run(open_stream())


def test_a_node_has_joined_once_it_has_a_lease(clock: Clock) -> None:
    session, told = make_session()
    agent = FakeAgent(beats=2)
    mind(session, agent)
    assert agent.echoes == [None, 1.0, 2.0]
    assert told == [Joined(FACTS, ClockOffset(1000.0 - 2.0)), Away("n1", "gone")]


def test_the_difference_of_the_clocks_is_reported(clock: Clock) -> None:
    session, told = make_session()
    mind(session, FakeAgent(beats=2, behind_s=3600.3))
    assert told[0] == Joined(FACTS, ClockOffset(1000.0 - 2.0, 3600))


def test_a_slow_reply_does_not_change_the_difference_of_the_clocks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, told = make_session()
    agent = FakeAgent(beats=2)
    answer = agent.beat

    async def beat_late(beat: Heartbeat) -> HeartbeatReply:
        found = await answer(beat)
        clock.now_s += 4.0 * len(agent.echoes)
        return found

    monkeypatch.setattr(agent, "beat", beat_late)
    monkeypatch.setattr(agent, "behind_s", 2.5)
    mind(session, agent)
    # By the first, which was asked at 1000 and answered at 1004.
    assert told[0] == Joined(FACTS, ClockOffset(1002.0 - 1.0, 0))


def test_a_leaving_node_is_reported_once_and_can_join_again(
    clock: Clock,
) -> None:
    session, told = make_session()
    mind(session, FakeAgent(beats=2))
    mind(session, FakeAgent(beats=3, departure=Departure.LEAVING))
    assert told[2:] == [Leaving("n1")]
    session.report_state()
    assert told[3:] == [Leaving("n1")]
    mind(session, FakeAgent(beats=2))
    assert isinstance(told[4], Joined)


def test_jobs_are_not_given_up_before_the_lease_has_expired(clock: Clock) -> None:
    session, told = make_session()
    clock.now_s += 100
    mind(session, FakeAgent(beats=2))
    told.clear()
    for later_s, parted in ((29.0, 0), (2.9, 0), (0.2, 1), (50.0, 1)):
        clock.now_s += later_s
        session.check_lease()
        assert sum(isinstance(news, LeaseExpired) for news in told) == parted


def test_a_shorter_lease_applies_after_the_granted_one_has_expired(clock: Clock) -> None:
    session, told = make_session()
    mind(session, FakeAgent(beats=2))
    session.lease_s = 10.0
    mind(session, FakeAgent(beats=2))
    clock.now_s += 20
    session.check_lease()
    assert not any(isinstance(news, LeaseExpired) for news in told)
    clock.now_s += 13
    session.check_lease()
    assert any(isinstance(news, LeaseExpired) for news in told)


def test_a_new_bridge_waits_for_a_whole_lease(clock: Clock) -> None:
    session, told = make_session()
    clock.now_s += 31
    session.check_lease()
    assert told == []
    clock.now_s += 2
    session.check_lease()
    assert len(told) == 1


def test_a_node_whose_streams_end_at_once_gets_the_next_ones_later_and_later(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _told = make_session()
    mind(session, FakeAgent(beats=2))
    pauses = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(8):
        carry(session)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    monkeypatch.setattr(module, "_SETTLED_S", 0.0)
    carry(session)
    assert pauses[-1] == 0.5


def test_a_node_without_supervisor_is_away_with_the_reason_and_tried_again_later(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 3600.0)
    session, told = make_session()
    agent = FakeAgent(beats=10**6)
    agent.problem = problem = "cannot start a supervisor: No space left on device"

    async def while_it_answers() -> None:
        beats = asyncio.ensure_future(session.mind(agent, FACTS))
        while not told:
            await asyncio.sleep(0)
        assert isinstance(told.pop(), Joined)
        stream = asyncio.ensure_future(
            session.carry(asyncio.StreamReader(), IgnoringWriter())  # type: ignore[arg-type]
        )
        while not told:
            await asyncio.sleep(0)
        assert told == [Away("n1", problem)]
        known = len(agent.echoes)
        while len(agent.echoes) < known + 10:
            await asyncio.sleep(0)
        assert len(told) == 1
        session._reopen_at = 0.0  # an hour later
        while len(told) < 2:
            await asyncio.sleep(0)
        assert isinstance(told[1], Joined)
        beats.cancel()
        stream.cancel()

    asyncio.run(while_it_answers())


def test_jobs_are_not_given_up_while_a_thread_writes_their_files(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, told = make_session()
    clock.now_s += 40

    async def expire() -> None:
        may_go_on = threading.Event()
        work = asyncio.ensure_future(session._writers.run(may_go_on.wait, 20))
        await asyncio.sleep(0)
        session.check_lease()
        assert told == []
        may_go_on.set()
        await work
        session.check_lease()
        assert isinstance(told[0], LeaseExpired)

    asyncio.run(expire())
