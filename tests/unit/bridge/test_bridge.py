"""What a daemon can ask of the bridge."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.bridge.__main__ import Bridge
from stoker.bridge.roll import Roll
from stoker.executors.node import Forget


class Writer:
    """A daemon's end of a connection, which keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

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
    monkeypatch.setattr(Roll, "forget", lambda _self, node: forgotten.append(node))
    bridge._post_for("n1", "h1")
    bridge._carry_out(Forget("n1"), Writer())  # type: ignore[arg-type]
    assert (bridge.posts, forgotten) == ({}, ["n1"])
