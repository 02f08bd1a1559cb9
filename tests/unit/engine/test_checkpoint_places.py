"""Checkpoints that do not travel: their job waits for their node for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine import checkpoint_places
from stoker.engine.checkpoint_places import PATIENCE_S
from stoker.executors.contract import Stayed
from unit.engine.engine_harness import Harness, MakeHarness

LARGE = "12288 MiB are more than sync.limit"
FAILED = 1 << 8


@pytest.fixture
def cluster(make_harness: MakeHarness) -> Harness:
    """Return a head and two nodes, each with one GPU."""
    slots = tuple(Slot(n, ("0",), (f"h{n}/GPU-0",), f"h{n}") for n in range(3))
    return make_harness(gpus=slots, nodes=tuple(NodeFacts(f"h{n}") for n in range(3)))


def where(harness: Harness, key: str) -> str:
    return harness.engine.slot_table.running[key].where


def stay(harness: Harness, key: str) -> None:
    """Let an attempt fail whose checkpoints stay on its node."""
    harness.executor.report(Stayed(key, LARGE))
    harness.settle()
    harness.executor.end(key, FAILED)


def start_on(harness: Harness, node: str, **options: object) -> str:
    """Start a job with a retry on a node that any node may run, and return its key."""
    others = {f"h{n}" for n in range(3)} - {node}
    fillers = [harness.add("filler", nodes=[other]).first for other in sorted(others)]
    job = harness.add("train", retries=3, **options).first
    assert where(harness, f"{job}.1") == node
    for filler in fillers:
        harness.end(f"{filler}.1")
    return f"{job}.1"


def next_of(key: str) -> str:
    job, _, number = key.partition(".")
    return f"{job}.{int(number) + 1}"


def test_a_job_runs_again_where_its_checkpoints_are(cluster: Harness) -> None:
    key = start_on(cluster, "h2")
    stay(cluster, key)
    cluster.settle()
    assert where(cluster, next_of(key)) == "h2"
    (launch,) = [each for each in cluster.executor.launched if each.key == next_of(key)]
    assert launch.checkpoints is None  # the head's are older


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_waits_for_its_checkpoints_for_a_while(cluster: Harness, restarts: bool) -> None:
    key = start_on(cluster, "h2")
    urgent = cluster.add("urgent", nodes=["h2"], priority=9).first
    stay(cluster, key)
    cluster.settle()
    job = int(key.partition(".")[0])
    assert cluster.states()[job] == "waiting"
    assert where(cluster, f"{urgent}.1") == "h2"
    assert f"it waits for h2, where its checkpoints stay ({LARGE})" in cluster.why(job)
    if restarts:
        cluster.restart()
    cluster.settle()
    cluster.wait(PATIENCE_S - 1)
    assert cluster.states()[job] == "waiting"
    patience_s = cluster.engine.patience_s()
    assert patience_s is not None
    cluster.wait(patience_s)
    assert where(cluster, next_of(key)) in {"h0", "h1"}
    cluster.end(next_of(key), FAILED)
    assert "its checkpoints stay" not in cluster.why(job)


def test_checkpoints_of_the_head_go_along_to_another_node(cluster: Harness) -> None:
    key = start_on(cluster, "h2")
    (launch,) = [each for each in cluster.executor.launched if each.key == key]
    job = int(key.partition(".")[0])
    assert launch.checkpoints == str(cluster.home / "checkpoints" / "0" / str(job))


@pytest.mark.parametrize("size", [100, 5000])
def test_a_job_prefers_the_head_if_its_checkpoints_there_are_too_large(
    cluster: Harness, size: int
) -> None:
    cluster.config("sync.limit", "4096")
    key = start_on(cluster, "h0")
    job = int(key.partition(".")[0])
    (Path(cluster.home) / "checkpoints" / "0" / str(job) / "last").write_text("x" * size)
    urgent = cluster.add("urgent", nodes=["h0"], priority=9).first
    cluster.end(key, FAILED)
    assert where(cluster, f"{urgent}.1") == "h0"
    if size < 4096:
        assert where(cluster, next_of(key)) in {"h1", "h2"}
    else:
        assert "it waits for h0, where its checkpoints stay" in cluster.why(job)


@pytest.mark.parametrize("how", ["done", "removed"])
def test_nothing_is_kept_of_jobs_that_are_over(cluster: Harness, how: str) -> None:
    key = start_on(cluster, "h2")
    job = key.partition(".")[0]
    stay(cluster, key)
    cluster.settle()
    if how == "done":
        cluster.end(next_of(key))
    else:
        cluster.kill(job)
        cluster.rm(job)
    places = cluster.engine.retry_policy.checkpoints
    assert not places
    cluster.restart()
    assert not cluster.engine.retry_policy.checkpoints


def test_the_size_of_a_folder_is_measured_as_far_as_needed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("x", "a/y"):
        (tmp_path / name).write_text("12345")
    assert checkpoint_places._measure(str(tmp_path), 100) == 10
    assert checkpoint_places._measure(str(tmp_path), 3) == 5
    assert checkpoint_places._measure(str(tmp_path / "missing"), 3) == 0
