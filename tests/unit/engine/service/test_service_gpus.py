from __future__ import annotations

import pytest

from stoker.core.slot import Slot
from stoker.engine.service.gpus import read
from stoker.errors import ConflictError, NotFoundError, UsageError
from unit.engine.world import MakeWorld, World


def test_a_drained_gpu_gets_nothing_new_and_what_runs_there_goes_on(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.add("a", "b", "c")
    changed = world.gpus("drain", "0")
    assert (changed.slots, changed.jobs, changed.notice) == (["0"], [1], None)
    world.now += 5
    world.end("1.1")
    assert world.executor.running == ["2.1"]
    assert world.executor.leased == {"GPU-1"}

    world.gpus("add", "0")
    assert sorted(world.executor.running) == ["2.1", "3.1"]


def test_what_was_claimed_in_advance_for_it_goes_elsewhere(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c", "d")
    world.run_short_jobs("1.1")
    assert world.executor.queued
    world.gpus("drain", "0")

    assert world.executor.queued == []


def test_the_last_one_is_warned_about(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    changed = world.gpus("drain", "0")

    assert changed.notice == (
        "no GPU is left in use: only jobs without GPU start until one is added"
    )
    world.add("a", "b", gpus=0)
    assert len(world.executor.running) == 2


def test_drained_and_removed_ones_stay_so_over_a_restart(make_world: MakeWorld) -> None:
    world = make_world(gpus=3)
    world.config("gpus", "0,1,2")
    world.gpus("drain", "0")
    world.gpus("remove", "1")
    assert world.hub.config.text("gpus") == "0,2"
    world.restart(gpus=(Slot(0, ("0",), ("GPU-0",)), Slot(1, ("2",), ("GPU-2",))))
    world.add("a", "b")

    assert world.executor.launched[-1].slots == (1,)
    assert len(world.executor.running) == 1


def test_by_default_draining_and_removing_leaves_the_default(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.gpus("drain", "0")
    world.gpus("remove", "1")
    settings = {each.name: each.value for each in world.hub.config.all()}

    assert settings["gpus"] == "default"
    assert (settings["gpus-drained"], settings["gpus-removed"]) == ("0", "1")
    world.gpus("add", "0")
    world.gpus("add", "1")
    settings = {each.name: each.value for each in world.hub.config.all()}
    assert (settings["gpus-drained"], settings["gpus-removed"]) == ("none", "none")


def test_a_new_gpu_gets_jobs_at_once(make_world: MakeWorld) -> None:
    world = make_world(gpus=1)
    world.add("a", "b", "c")
    assert world.gpus("add", "7,8").slots == ["7", "8"]

    assert sorted(world.executor.running) == ["1.1", "2.1", "3.1"]


def test_a_removed_one_counts_no_more(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.add("a", "b")
    world.gpus("remove", "1")
    assert sorted(world.executor.running) == ["1.1", "2.1"]
    with pytest.raises(UsageError, match="asks for 2 GPUs, and this queue has 1"):
        world.add("big", gpus=2)
    with pytest.raises(NotFoundError, match="there is no GPU 1 in this queue; there are: 0"):
        world.gpus("drain", "1")


def test_nonsense_is_refused(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    with pytest.raises(NotFoundError, match="there is no GPU 9"):
        world.gpus("drain", "9")
    world.gpus("drain", "1")
    with pytest.raises(ConflictError, match="GPU 1 is drained already"):
        world.gpus("drain", "1")


def test_a_gpu_that_is_in_use_is_not_added_again(make_world: MakeWorld) -> None:
    world = make_world(gpus=(Slot(0, ("0", "1"), ("0", "1")),))
    with pytest.raises(ConflictError, match=r"GPU 1 is in use already, as GPU 0\+1"):
        world.gpus("add", "1")


def test_a_queue_without_gpu_can_be_given_one(make_world: MakeWorld) -> None:
    world: World = make_world(gpus=0)
    world.gpus("add", "0")
    world.add("a")

    assert world.executor.running == ["1.1"]
    assert world.hub.no_gpu_reason is None


def test_without_nvml_the_slots_are_told_and_what_runs_there(make_world: MakeWorld) -> None:
    world = make_world(gpus=2)
    world.add("a")
    world.gpus("drain", "1")

    first, second = read(world.hub, history=True)
    assert (first.slot, first.jobs, first.drained, first.mem_total_bytes) == ("0", [1], None, 0)
    assert (second.slot, second.jobs, second.drained) == ("1", [], "drained")
