"""Multi-node executor: reports about nodes follow from the state of their streams."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator

import pytest

from stoker.core.slot import Slot
from stoker.executors.contract import Ended, Report, Started, Synced, Unheld
from stoker.executors.multi_node_executor import MultiNodeExecutor
from stoker.executors.node_orders import NODE_ORDERS, KeepAttempts
from stoker.executors.node_reports import (
    Away,
    ClockOffset,
    Introduction,
    Joined,
    NodeReport,
    Reachable,
)
from stoker.supervisor.messages import PROTOCOL, Sync
from stoker.testing.executor import FakeExecutor

FACTS = Introduction(id="n1", name="h1", version="1")


class FakeBridge:
    """A bridge whose streams end in the test."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.reports: list[NodeReport] = []
        self.streams: list[socket.socket] = []
        self._wakeup = os.eventfd(0)

    def fileno(self) -> int:
        return self._wakeup

    def observe(self) -> list[NodeReport]:
        reports, self.reports = self.reports, []
        return reports

    def open_stream(self, _node: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.streams.append(ours)
        return theirs

    def send(self, _order: object) -> None:
        pass

    def close(self) -> None:
        os.close(self._wakeup)
        for stream in self.streams:
            stream.close()


class Cluster:
    """A cluster with one node; the test plays the node's supervisor."""

    def __init__(self) -> None:
        self.bridge = FakeBridge()
        own = FakeExecutor(time.time, lambda _launch: None, persistent=True)
        self.executor = MultiNodeExecutor(own, "h0", self.bridge, "/nowhere")  # type: ignore[arg-type]
        self.executor.observe()

    def observe(self) -> list[Report]:
        return self.executor.observe()

    def connect(self, *wanted: str) -> None:
        """Let the node be reachable, and connect it as the daemon does."""
        assert self.observe()[-1] == Reachable("h1")
        self.executor.connect("h1", wanted)

    def sync(self) -> list[Report]:
        """Greet as a supervisor without attempts."""
        hello = ["hello", PROTOCOL, 1, "name", "1"]
        self.bridge.streams[-1].sendall(json.dumps(hello).encode() + b"\n")
        greeted = self.observe()
        self.bridge.streams[-1].sendall(b'["synced", [], false]\n')
        return greeted + self.observe()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.executor.close()


SYNCED = Synced(frozenset(), fresh=True, node="h1")


def test_a_node_has_joined_once_its_supervisor_has_synced(cluster: Cluster) -> None:
    cluster.bridge.reports.append(Joined(FACTS))
    cluster.connect()

    assert cluster.sync() == [SYNCED, Joined(FACTS)]


def test_a_node_is_away_when_its_stream_breaks_and_joins_with_the_next_stream(
    cluster: Cluster,
) -> None:
    cluster.bridge.reports.append(Joined(FACTS))
    cluster.connect()
    cluster.sync()
    cluster.bridge.streams[-1].close()

    assert cluster.observe() == [Away("h1", "the connection broke"), Reachable("h1")]
    cluster.executor.connect("h1", ())
    assert len(cluster.bridge.streams) == 2
    assert cluster.sync() == [SYNCED, Joined(FACTS)]


def test_times_of_a_node_are_converted_to_this_machines_clocks(cluster: Cluster) -> None:
    cluster.bridge.reports.append(Joined(FACTS, ClockOffset(-500.0, 3600)))
    cluster.connect()
    cluster.sync()
    began_us = time.time_ns() // 1000 - 60_000_000
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - 60.0
    there_us, there_s = began_us - 3600_000_000, began_s + 500.0

    cluster.bridge.streams[-1].sendall(
        f'["started", "1.1", 77, {there_us}, {there_s}]\n'
        f'["ended", "1.1", 0, {there_us + 1}, 1, 2]\n'.encode()
    )
    started, ended = cluster.observe()
    assert isinstance(started, Started)
    assert (started.key, started.pid, started.at_us) == ("1.1", 77, began_us)
    assert started.at_s == pytest.approx(began_s)
    assert ended == Ended("1.1", 0, began_us + 1, 1, 2)


def test_times_are_true_although_a_node_has_just_set_its_time_of_day(cluster: Cluster) -> None:
    cluster.bridge.reports.append(Joined(FACTS, ClockOffset(-500.0, 0)))
    cluster.connect()
    cluster.sync()
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - 60.0
    later_us = (time.time_ns() // 1000) + 600_000_000

    cluster.bridge.streams[-1].sendall(
        f'["started", "1.1", 77, 1, {began_s + 500.0}]\n["ended", "1.1", 0, {later_us}, 1, 2]\n'.encode()
    )
    started, ended = cluster.observe()

    now_us = time.time_ns() // 1000
    assert isinstance(started, Started)
    assert isinstance(ended, Ended)
    assert now_us - 61_000_000 - 30_000_000 <= started.at_us <= now_us - 59_000_000
    assert ended.at_us <= now_us


def test_a_second_node_of_the_same_name_gets_a_number(cluster: Cluster) -> None:
    assert cluster.executor.add_node("n1", "h1") == "h1"
    assert cluster.executor.add_node("n2", "h1") == "h1-2"
    assert cluster.executor.add_node("n3", "h0") == "h0-2"
    assert cluster.executor.add_node("n1", "h1") == "h1"


def test_a_node_that_has_left_refuses_leases_until_it_joins_again(cluster: Cluster) -> None:
    cluster.executor.add_node("n1", "h1")
    cluster.executor.define_slots([Slot(0, ("0",), ("h1/GPU-0",), "h1")])
    cluster.executor.forget("h1")
    cluster.executor.hold(0)
    assert cluster.observe() == [Unheld(0, "GPU-0", None)]

    assert cluster.executor.add_node("n1", "h1") == "h1"
    cluster.bridge.reports.append(Joined(FACTS))
    cluster.connect()
    assert cluster.sync() == [SYNCED, Joined(FACTS)]


def test_a_node_is_told_which_attempts_are_wanted_before_it_reports_any(cluster: Cluster) -> None:
    cluster.bridge.reports.append(Joined(FACTS))
    cluster.connect("1.1", "2.3")
    cluster.sync()
    first = cluster.bridge.streams[-1].recv(1 << 16).splitlines()[0]
    assert NODE_ORDERS.decode(first) == [KeepAttempts(["1.1", "2.3"]), Sync()]


def test_a_node_that_was_forgotten_meanwhile_is_not_connected(cluster: Cluster) -> None:
    cluster.bridge.reports.append(Joined(FACTS))
    assert cluster.observe() == [Reachable("h1")]
    cluster.executor.forget("h1")
    cluster.executor.connect("h1", ())
    assert cluster.bridge.streams == []
