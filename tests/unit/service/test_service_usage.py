"""`usage`: what GPUs and jobs use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker.core.slot import Slot
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.service.show import show
from stoker.service.usage import usage
from stoker.wire import JobQuery
from unit.engine.engine_harness import Harness, MakeHarness
from unit.gpus.driver import GIB, GPU, Driver


@pytest.fixture
def harness(make_harness: MakeHarness) -> Harness:
    return make_harness(gpus=(Slot(0, ("0",), ("GPU-0",)),))


@pytest.fixture
def driver(harness: Harness) -> Iterator[Driver]:
    """A GPU on which job 1 holds memory."""
    driver = Driver(GPU)
    driver.held["GPU-0"][os.getpid()] = 2 * GIB
    gpu_monitor = GpuMonitor(
        driver,
        harness.engine.slot_table,
        harness.context.publisher.on_notice,
        lambda _pid: "1.1",
        mind_others=False,
    )
    harness.engine.gpus.watch(gpu_monitor)
    yield driver
    gpu_monitor.stop()


def test_without_a_driver_there_is_nothing_to_tell(harness: Harness) -> None:
    told = usage(harness.context)
    assert (told.age_s, told.gpus, told.jobs) == (None, [], [])


def test_gpus_and_jobs_are_told_with_their_last_minutes(harness: Harness, driver: Driver) -> None:
    harness.add("train")
    gpu_monitor = harness.engine.gpus.monitor
    assert isinstance(gpu_monitor, GpuMonitor)
    gpu_monitor.look_again()

    told = usage(harness.context)

    assert told.age_s is not None
    assert [(curve.now.label, curve.now.used_bytes) for curve in told.gpus] == [("0", 2 * GIB)]
    assert [(curve.id, curve.past[-1][1]) for curve in told.jobs] == [(1, 2 * GIB)]
    assert len(told.gpus[0].past) >= 2


def test_an_attempt_shows_what_it_has_used_while_it_runs_and_afterwards(
    harness: Harness, driver: Driver
) -> None:
    harness.add("train")
    gpu_monitor = harness.engine.gpus.monitor
    assert isinstance(gpu_monitor, GpuMonitor)
    gpu_monitor.look_again()
    during = show(harness.context, JobQuery("1")).attempts[0].gpu_use
    harness.end("1.1")
    after = show(harness.context, JobQuery("1")).attempts[0].gpu_use

    assert during is not None
    assert after is not None
    assert during.mem_peak_bytes == after.mem_peak_bytes == 2 * GIB
