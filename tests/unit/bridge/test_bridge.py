"""Bridge: orders of the daemon and reports to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.bridge import __main__ as module
from stoker.bridge.__main__ import Bridge
from stoker.bridge.ray_membership import RayMembership
from stoker.core.usage import Look
from stoker.executors.bridge_orders import ForgetNode, KnownNodes
from stoker.executors.node_reports import (
    NODE_REPORTS,
    Away,
    GpuSample,
    GpusSampled,
    NodeReport,
    Notice,
)


class Writer:
    """A daemon's connection that records what it gets."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.transport = self
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.received.append(data)

    @property
    def reports(self) -> list[NodeReport]:
        return NODE_REPORTS.decode_lines(b"".join(self.received))

    def get_write_buffer_size(self) -> int:
        return 0 if self.is_reading else sum(map(len, self.received))

    def is_closing(self) -> bool:
        return False


@pytest.fixture
def bridge(tmp_path: Path) -> Bridge:
    """Return a bridge that has not begun to look for nodes."""
    (tmp_path / "cluster").mkdir()
    return Bridge(str(tmp_path), "q", "")


def test_forgetting_a_node_ends_its_session(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(RayMembership, "forget", lambda _self, node: forgotten.append(node))
    bridge._session_for("n1", "h1")
    bridge._carry_out(ForgetNode("n1"), Writer())  # type: ignore[arg-type]
    assert (bridge.sessions, forgotten) == ({}, ["n1"])


def test_a_lease_applies_to_all_nodes_even_if_the_daemon_does_not_know_them(
    bridge: Bridge,
) -> None:
    session = bridge._session_for("n1", "h1")
    bridge._carry_out(KnownNodes((("n2", "h2"),), 300.0, 1 << 20), Writer())  # type: ignore[arg-type]
    assert (session.lease_s, bridge.sessions["n2"].lease_s) == (300.0, 300.0)


def test_leases_stay_unchanged_if_new_ones_cannot_be_recorded(
    bridge: Bridge, tmp_path: Path
) -> None:
    daemon = Writer()
    (tmp_path / "cluster" / "leases.new").mkdir()
    bridge._carry_out(KnownNodes((("n1", "h1"),), 300.0, 1 << 20), daemon)  # type: ignore[arg-type]
    assert bridge.sessions["n1"].lease_s == 30.0
    assert daemon.reports == [
        Notice(
            "leases stay at 30s, because 300s cannot be put on record (Is a directory):"
            " stoker daemon restart tries again"
        ),
        Away("n1", "it has not answered yet"),
    ]


def test_a_daemon_that_does_not_read_gets_reports_of_nodes_but_not_of_gpus(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_UNREAD_BYTES", 1000)
    daemon = Writer()
    bridge._carry_out(KnownNodes((), 30.0, 1 << 20), daemon)  # type: ignore[arg-type]
    sampled = GpusSampled("n1", GpuSample(Look(0.0, {}, {}), {}))
    for _ in range(100):
        bridge.report(sampled)
    assert daemon.reports == [sampled] * 100

    daemon.received.clear()
    daemon.is_reading = False
    for _ in range(100):
        bridge.report(sampled)
    bridge.report(Away("n1", "gone"))
    *seen, last = daemon.reports
    assert 1 <= len(seen) < 100
    assert last == Away("n1", "gone")
