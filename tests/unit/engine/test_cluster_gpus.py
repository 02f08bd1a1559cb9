"""What is kept of what nodes tell."""

from __future__ import annotations

import pytest

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse, JobUse, Look
from stoker.engine.cluster_gpus import ClusterGpus
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.executors.node_reports import GpuSample
from stoker.gpus.memory_release import PATIENCE_S


def seated(slot_table: SlotTable, slot: Slot) -> RunningAttempt:
    running = RunningAttempt(
        key="7.1", attempt=Attempt.from_key("7.1"), entry=QueueEntry(b"", Request()), slots=(slot,)
    )
    slot_table.occupy(running)
    return running


def test_a_node_without_measurements_does_not_keep_a_slot_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    slot = Slot(0, ("0",), ("h1/GPU-0",), "h1")
    slot_table = SlotTable((slot,))
    cluster_gpus = ClusterGpus(slot_table)
    told: list[str] = []
    cluster_gpus.on_notice = told.append
    running = seated(slot_table, slot)
    use = JobUse(key="7.1", mem_bytes={"GPU-0": 5}, so_far=AttemptUse())
    cluster_gpus.see("h1", GpuSample(Look(0.0, {}, {"7.1": use}), {}))
    cluster_gpus.on_end(running)
    slot_table.vacate(running)

    now += PATIENCE_S - 1
    cluster_gpus.see("h1", None)
    assert [place.releasing for place in slot_table.states] == [True]
    assert told == []
    now += 1
    cluster_gpus.see("h1", None)
    assert [place.releasing for place in slot_table.states] == [False]
    assert told == [
        (
            "GPU h1/0: cannot confirm that the previous job's GPU memory was freed; starting the next job"
            " anyway"
        )
    ]


def test_a_late_sample_of_an_ended_attempt_is_dropped() -> None:
    slot = Slot(0, ("0",), ("h1/GPU-0",), "h1")
    slot_table = SlotTable((slot,))
    cluster_gpus = ClusterGpus(slot_table)
    use = JobUse(key="7.1", mem_bytes={"GPU-0": 5}, so_far=AttemptUse())
    sight = GpuSample(Look(0.0, {}, {"7.1": use}), {})
    running = seated(slot_table, slot)
    cluster_gpus.see("h1", sight)
    assert len(cluster_gpus.histories()["7.1"]) == 1

    cluster_gpus.on_end(running)
    slot_table.vacate(running)
    cluster_gpus.see("h1", sight)
    assert cluster_gpus.histories() == {}
    assert len(cluster_gpus.history_of("7.1")) == 1
