"""One executor over several machines: what is told of nodes follows from what can be said to them."""

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
from stoker.executors.node_reports import Ahead, Away, Introduction, Joined, News
from stoker.supervisor.messages import PROTOCOL
from stoker.testing.executor import FakeExecutor

FACTS = Introduction(id="n1", name="h1", version="1")


class FakeLink:
    """A bridge whose streams end here."""

    def __init__(self) -> None:
        self.nodes: dict[str, str] = {}
        self.news: list[News] = []
        self.streams: list[socket.socket] = []
        self._bell = os.eventfd(0)

    def fileno(self) -> int:
        return self._bell

    def observe(self) -> list[News]:
        news, self.news = self.news, []
        return news

    def open_stream(self, _node: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.streams.append(ours)
        return theirs

    def tell(self, _order: object) -> None:
        pass

    def close(self) -> None:
        os.close(self._bell)
        for stream in self.streams:
            stream.close()


class Fleet:
    """A fleet with one node, and the test as its supervisor."""

    def __init__(self) -> None:
        self.link = FakeLink()
        own = FakeExecutor(time.time, lambda _launch: None, persistent=True)
        self.executor = MultiNodeExecutor(own, "h0", self.link, "/nowhere")  # type: ignore[arg-type]
        self.executor.observe()

    def observe(self) -> list[Report]:
        return self.executor.observe()

    def tell_all(self) -> list[Report]:
        """Be a supervisor that greets, and knows of nothing."""
        hello = ["hello", PROTOCOL, 1, "name", "1"]
        self.link.streams[-1].sendall(json.dumps(hello).encode() + b"\n")
        greeted = self.observe()
        self.link.streams[-1].sendall(b'["synced", [], false]\n')
        return greeted + self.observe()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    fleet.executor.close()


SYNCED = Synced(frozenset(), fresh=True, node="h1")


def test_a_node_is_there_once_its_supervisor_has_told_all_it_knows(fleet: Fleet) -> None:
    fleet.link.news.append(Joined(FACTS))
    assert fleet.observe() == []

    assert fleet.tell_all() == [SYNCED, Joined(FACTS)]


def test_a_node_is_away_when_its_stream_breaks_and_there_again_after_the_next(fleet: Fleet) -> None:
    fleet.link.news.append(Joined(FACTS))
    fleet.observe()
    fleet.tell_all()
    fleet.link.streams[-1].close()

    assert fleet.observe() == [Away("h1", "the connection broke")]
    assert len(fleet.link.streams) == 2
    assert fleet.tell_all() == [SYNCED, Joined(FACTS)]


def test_times_of_a_node_are_told_by_the_clocks_of_this_machine(fleet: Fleet) -> None:
    fleet.link.news.append(Joined(FACTS, Ahead(-500.0, 3600)))
    fleet.observe()
    fleet.tell_all()

    fleet.link.streams[-1].sendall(
        b'["started", "1.1", 77, 1000000, 600.5]\n["ended", "1.1", 0, 2000000, 1, 2]\n'
    )
    started, ended = fleet.observe()
    assert started == Started("1.1", 77, 3601_000_000, 100.5)
    assert ended == Ended("1.1", 0, 3602_000_000, 1, 2)


def test_a_second_node_of_one_name_gets_another(fleet: Fleet) -> None:
    assert fleet.executor.know("n1", "h1") == "h1"
    assert fleet.executor.know("n2", "h1") == "h1-2"
    assert fleet.executor.know("n3", "h0") == "h0-2"
    assert fleet.executor.know("n1", "h1") == "h1"


def test_what_is_asked_of_a_node_that_has_left_is_refused(fleet: Fleet) -> None:
    fleet.executor.know("n1", "h1")
    fleet.executor.define_slots([Slot(0, ("0",), ("h1/GPU-0",), "h1")])
    fleet.executor.forget("h1")
    fleet.executor.hold(0)
    assert fleet.observe() == [Unheld(0, "GPU-0", None)]

    assert fleet.executor.know("n1", "h1") == "h1"
    fleet.link.news.append(Joined(FACTS))
    fleet.observe()
    assert fleet.tell_all() == [SYNCED, Joined(FACTS)]
