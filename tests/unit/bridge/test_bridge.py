"""What a daemon can ask of the bridge."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stoker.bridge import __main__ as module
from stoker.bridge.__main__ import Bridge
from stoker.bridge.ray_membership import RayMembership
from stoker.core.usage import Look
from stoker.executors.node_reports import Away, Forget, Known, News, Sight, Sighted, Told


class Writer:
    """A daemon's end of a connection, which keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.transport = self
        self.takes_in = True

    def write(self, data: bytes) -> None:
        self.told.append(data)

    @property
    def news(self) -> list[News]:
        return msgspec.json.Decoder(News).decode_lines(b"".join(self.told))

    def get_write_buffer_size(self) -> int:
        return 0 if self.takes_in else sum(map(len, self.told))

    def is_closing(self) -> bool:
        return False


@pytest.fixture
def bridge(tmp_path: Path) -> Bridge:
    """Return a bridge that has not begun to look for nodes."""
    (tmp_path / "cluster").mkdir()
    return Bridge(str(tmp_path), "q", "")


def test_a_node_that_is_forgotten_is_no_longer_minded_for_a_post_that_is_gone(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(RayMembership, "forget", lambda _self, node: forgotten.append(node))
    bridge._session_for("n1", "h1")
    bridge._carry_out(Forget("n1"), Writer())  # type: ignore[arg-type]
    assert (bridge.posts, forgotten) == ({}, ["n1"])


def test_a_lease_is_that_of_all_nodes_also_of_those_that_the_daemon_does_not_know_yet(
    bridge: Bridge,
) -> None:
    post = bridge._session_for("n1", "h1")
    bridge._carry_out(Known((("n2", "h2"),), 300.0), Writer())  # type: ignore[arg-type]
    assert (post.lease_s, bridge.posts["n2"].lease_s) == (300.0, 300.0)


def test_leases_stay_as_they_were_while_others_cannot_be_put_on_record(
    bridge: Bridge, tmp_path: Path
) -> None:
    daemon = Writer()
    (tmp_path / "cluster" / "leases.new").mkdir()
    bridge._carry_out(Known((("n1", "h1"),), 300.0), daemon)  # type: ignore[arg-type]
    assert bridge.posts["n1"].lease_s == 30.0
    assert daemon.news == [
        Told(
            "leases stay at 30 s, because 300 s cannot be put on record (Is a directory):"
            " stoker daemon restart tries again"
        ),
        Away("n1", "it has not answered yet"),
    ]


def test_a_daemon_that_takes_nothing_in_is_told_what_becomes_of_nodes_but_not_how_their_gpus_are(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_UNREAD", 1000)
    daemon = Writer()
    bridge._carry_out(Known((), 30.0), daemon)  # type: ignore[arg-type]
    sighted = Sighted("n1", Sight(Look(0.0, {}, {}), {}))
    for _ in range(100):
        bridge.tell(sighted)
    assert daemon.news == [sighted] * 100

    daemon.told.clear()
    daemon.takes_in = False
    for _ in range(100):
        bridge.tell(sighted)
    bridge.tell(Away("n1", "gone"))
    *seen, last = daemon.news
    assert 1 <= len(seen) < 100
    assert last == Away("n1", "gone")
