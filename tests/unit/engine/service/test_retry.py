"""`retry` by reason; what it does to one job is told with the queue."""

from __future__ import annotations

from unit.engine.world import FAILED, MakeWorld


def test_a_reason_chooses_among_what_did_not_succeed(make_world: MakeWorld) -> None:
    world = make_world(gpus=4)
    world.add("a", "b", "c", "d")
    world.end("1.1", FAILED)
    world.end("2.1", 127 << 8)
    world.end("3.1", 0)
    world.end("4.1", 9)

    assert world.retry(all=True, reason="Not Found").ids == [2]
    assert world.retry(all=True, reason="sigkill").ids == [4]
    assert world.retry(all=True, reason="no such reason").ids == []
    assert world.retry(all=True).ids == [1]
