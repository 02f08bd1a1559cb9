from __future__ import annotations

from pathlib import Path

import pytest

from unit.core.link_matrices import MATRICES
from unit.engine.engine_harness import Harness


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
