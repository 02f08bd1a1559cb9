from __future__ import annotations

from pathlib import Path

import pytest

from stoker.executors.node_reports import Introduction, Joined, NodeSlot
from unit.core.link_matrices import MATRICES
from unit.engine.cluster_harness import Cluster
from unit.engine.engine_harness import Harness, MakeHarness


def make_queue(folder: Path, matrix: str) -> Harness:
    queue = Harness(folder, gpus=8)
    queue.engine.slot_table.links.gpus = {
        frozenset((f"GPU-{a}", f"GPU-{b}")): link for (a, b), link in MATRICES[matrix](8)
    }
    return queue


def test_jobs_get_slots_by_their_links_and_leave_pairs_whole(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, "pairs")
    queue.add("one")
    queue.settle()
    queue.add("pair", gpus=2)
    queue.settle()
    queue.add("one")
    queue.settle()
    queue.add("four", gpus=4)
    queue.settle()
    assert [queue.column("slots", job) for job in range(1, 5)] == ["0", "2,3", "1", "4,5,6,7"]
    queue.add("one")
    queue.settle()
    assert queue.states()[5] == "waiting"
    queue.close()


def test_a_job_starts_at_once_on_gpus_that_nothing_joins(tmp_path: Path) -> None:
    queue = make_queue(tmp_path, "pcie-2x4")
    queue.add("three", "three", gpus=3)
    queue.settle()
    queue.add("two", gpus=2)
    queue.settle()
    assert [queue.column("slots", job) for job in range(1, 4)] == ["0,1,2", "4,5,6", "3,7"]
    queue.close()


@pytest.mark.parametrize("matrix", ["nvswitch", "equal"])
def test_links_that_are_all_equal_leave_nothing_to_choose(tmp_path: Path, matrix: str) -> None:
    queue = make_queue(tmp_path, matrix)
    assert queue.engine.slot_table.links.current() is None
    queue.close()


def test_a_job_gets_the_joined_gpus_of_one_node_and_never_those_of_two(
    make_harness: MakeHarness,
) -> None:
    cluster = Cluster(make_harness(gpus=0))
    keys = [f"GPU-{number}" for number in range(4)]
    slots = tuple(NodeSlot((str(number),), (key,)) for number, key in enumerate(keys))
    links = tuple((keys[a], keys[b], link) for (a, b), link in MATRICES["pairs"](4))
    for name in ("h3", "h4"):
        node = Introduction(id=f"id-{name}", name=name, version="1", slots=slots, links=links)
        cluster.report(Joined(node))
    queue = cluster.harness
    queue.add("one", nodes=["h3"])
    queue.settle()
    queue.add("pair", gpus=2, nodes=["h3"])
    queue.settle()
    queue.add("pairs", "pairs", gpus=2)
    queue.settle()

    assert [queue.column("slots", job) for job in range(1, 5)] == [
        "h3/0",
        "h3/2,h3/3",
        "h4/0,h4/1",
        "h4/2,h4/3",
    ]
    cluster.nodes.forget("h3")
    links_now = queue.engine.slot_table.links.current()
    assert links_now is not None
    assert set(links_now.nodes.values()) == {"h4"}
