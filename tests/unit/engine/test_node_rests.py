"""Nodes that lack a resource for a while: jobs run elsewhere, and the node is tried again later and later."""

from __future__ import annotations

import errno

import pytest

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from unit.engine.engine_harness import Harness, MakeHarness

FULL = "No space left on device: /home/me/.stoker/cluster/queues"


@pytest.fixture
def cluster(make_harness: MakeHarness) -> Harness:
    """Return a head without GPUs, and two nodes with one GPU each."""
    slots = tuple(Slot(n - 1, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in (1, 2))
    return make_harness(gpus=slots, nodes=tuple(NodeFacts(f"h{n}") for n in range(3)))


def places(harness: Harness) -> dict[str, str]:
    """The node of each running attempt."""
    return {key: each.where for key, each in harness.engine.slot_table.running.items()}


def test_a_job_that_a_full_node_refuses_runs_on_another(cluster: Harness) -> None:
    cluster.executor.refuse_next(errno.ENOSPC, FULL)
    cluster.add()
    assert places(cluster) == {"1.1": "h2"}
    cluster.add()
    assert "GPU h1/0 gets no jobs until " in cluster.why(2)
    assert FULL in cluster.why(2)


def test_a_job_that_fits_nowhere_else_waits_with_the_reason(cluster: Harness) -> None:
    for _ in range(2):
        cluster.executor.refuse_next(errno.ENOSPC, FULL)
    cluster.add()
    assert cluster.states() == {1: "waiting"}
    assert cluster.why(1).count(FULL) == 2
    assert cluster.column("attempt", 1) == 0


def test_a_full_node_is_tried_again_after_longer_and_longer_pauses(cluster: Harness) -> None:
    tried_at: list[float] = []
    cluster.add("train", nodes=["h1"])
    cluster.end("1.1")
    for _ in range(9):
        cluster.executor.refuse_next(errno.ENOSPC, FULL)
    begun = cluster.now
    cluster.add("train", nodes=["h1"])
    while cluster.states()[2] == "waiting":
        pause_s = cluster.engine.patience_s()
        assert pause_s is not None
        cluster.wait(pause_s)
        if len(cluster.executor.launched) > len(tried_at) + 2:
            tried_at.append(cluster.now - begun)
    pauses = [after - before for before, after in zip([0, *tried_at], tried_at, strict=False)]
    assert pauses == pytest.approx([5, 10, 20, 40, 80, 160, 300, 300, 300])


def test_a_node_that_starts_a_job_again_is_as_good_as_new(cluster: Harness) -> None:
    for key in ("1.1", "2.1"):
        cluster.executor.refuse_next(errno.ENOSPC, FULL)
        cluster.add("train", nodes=["h1"])
        cluster.wait(5)
        assert places(cluster) == {key: "h1"}
        cluster.end(key)


def test_other_jobs_go_on_meanwhile(cluster: Harness) -> None:
    cluster.executor.refuse_next(errno.ENOSPC, FULL)
    cluster.add("train", nodes=["h1"])
    cluster.add("train", nodes=["h2"])
    assert places(cluster) == {"2.1": "h2"}


def test_a_job_without_gpu_avoids_a_resting_node(cluster: Harness) -> None:
    cluster.executor.refuse_next(errno.ENOSPC, FULL)
    cluster.add("train", gpus=0, nodes=["h1", "h2"])
    assert places(cluster) == {"1.1": "h2"}
    cluster.add("train", gpus=0, nodes=["h1"])
    assert "node h1 gets no jobs until " in cluster.why(2)
    assert FULL in cluster.why(2)
