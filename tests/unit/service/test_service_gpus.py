from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stoker.core.slot import Slot
from stoker.core.usage import GpuUse, Sight
from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.executors.node_reports import GpuState
from stoker.gpus import lease
from stoker.service import gpus
from stoker.service.gpus import read_gpus
from stoker.wire import GpusQuery
from unit.engine.engine_harness import Harness, MakeHarness


def test_a_drained_gpu_gets_nothing_new_and_what_runs_there_goes_on(
    make_harness: MakeHarness,
) -> None:
    harness = make_harness(gpus=2)
    harness.add("a", "b", "c")
    changed = harness.gpus("drain", "0")
    assert (changed.slots, changed.jobs, changed.notice) == (["0"], [1], None)
    harness.now += 5
    harness.end("1.1")
    assert harness.executor.running == ["2.1"]
    assert harness.executor.leased == {"GPU-1"}

    harness.gpus("add", "0")
    assert sorted(harness.executor.running) == ["2.1", "3.1"]


def test_what_was_claimed_in_advance_for_it_goes_elsewhere(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c", "d")
    harness.run_short_jobs("1.1")
    assert harness.executor.queued
    harness.gpus("drain", "0")

    assert harness.executor.queued == []


def test_the_last_one_is_warned_about(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    changed = harness.gpus("drain", "0")

    assert changed.notice == (
        "no GPU is left in use: only jobs without GPU start until one is added"
    )
    harness.add("a", "b", gpus=0)
    assert len(harness.executor.running) == 2


def test_drained_and_removed_ones_stay_so_over_a_restart(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=3)
    harness.config("gpus", "0,1,2")
    harness.gpus("drain", "0")
    harness.gpus("remove", "1")
    assert harness.context.config.text("gpus") == "0,2"
    harness.restart(gpus=(Slot(0, ("0",), ("GPU-0",)), Slot(1, ("2",), ("GPU-2",))))
    harness.add("a", "b")

    assert harness.executor.launched[-1].slots == (1,)
    assert len(harness.executor.running) == 1


def test_by_default_draining_and_removing_leaves_the_default(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.gpus("drain", "0")
    harness.gpus("remove", "1")
    settings = {each.name: each.value for each in harness.context.config.all()}

    assert settings["gpus"] == "default"
    assert (settings["gpus-drained"], settings["gpus-removed"]) == ("0", "1")
    harness.gpus("add", "0")
    harness.gpus("add", "1")
    settings = {each.name: each.value for each in harness.context.config.all()}
    assert (settings["gpus-drained"], settings["gpus-removed"]) == ("none", "none")


def test_a_new_gpu_gets_jobs_at_once(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=1)
    harness.add("a", "b", "c")
    assert harness.gpus("add", "7,8").slots == ["7", "8"]

    assert sorted(harness.executor.running) == ["1.1", "2.1", "3.1"]


def test_a_removed_one_counts_no_more(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("a", "b")
    harness.gpus("remove", "1")
    assert sorted(harness.executor.running) == ["1.1", "2.1"]
    with pytest.raises(UsageError, match="asks for 2 GPUs, and this queue has 1"):
        harness.add("big", gpus=2)
    with pytest.raises(NotFoundError, match="there is no GPU 1 in this queue; there are: 0"):
        harness.gpus("drain", "1")


def test_nonsense_is_refused(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    with pytest.raises(NotFoundError, match="there is no GPU 9"):
        harness.gpus("drain", "9")
    harness.gpus("drain", "1")
    with pytest.raises(ConflictError, match="GPU 1 is drained already"):
        harness.gpus("drain", "1")


def test_a_gpu_that_is_in_use_is_not_added_again(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=(Slot(0, ("0", "1"), ("0", "1")),))
    with pytest.raises(ConflictError, match=r"GPU 1 is in use already, as GPU 0\+1"):
        harness.gpus("add", "1")


def test_a_queue_without_gpu_can_be_given_one(make_harness: MakeHarness) -> None:
    harness: Harness = make_harness(gpus=0)
    harness.gpus("add", "0")
    harness.add("a")

    assert harness.executor.running == ["1.1"]
    assert harness.context.no_gpu_reason is None


def test_without_nvml_the_slots_are_told_and_what_runs_there(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2)
    harness.add("a")
    harness.gpus("drain", "1")

    first, second = asyncio.run(read_gpus(harness.context, GpusQuery(history=True)))
    assert (first.slot, first.jobs, first.drained, first.mem_total_bytes) == ("0", [1], None, 0)
    assert (second.slot, second.jobs, second.drained) == ("1", [], "drained")


def use_of(key: str, label: str) -> GpuUse:
    return GpuUse(key=key, label=label, sight=Sight.NONE)


def test_who_holds_a_gpu_is_shown_for_this_machine_and_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path))
    assert gpus._held_by(use_of("GPU-0", "0"), None) is None
    held = lease.take("GPU-0", "stoker-test")
    assert held is not None
    assert "stoker-test (pid " in (gpus._held_by(use_of("GPU-0", "0"), None) or "")
    held.release()
    far = use_of("h1/GPU-0", "h1/0")
    assert gpus._held_by(far, None) is None
    assert gpus._held_by(far, GpuState(held_by="me: stoker-1")) == "me: stoker-1"
