"""Slots are closed and opened by what the driver shows and tells."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping

import pytest

from patience import PATIENCE_S
from stoker.core.job import Attempt, Outcome, Request
from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import STARTING, Running, RunningAttempt
from stoker.engine.slot_state import LeaseHeld
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Ended
from stoker.gpus.driver import Fault
from unit.gpus.driver import GIB, GPU, SECOND, Driver

FAR_PID = 1 << 30


class Notes:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_launch(self, running: RunningAttempt) -> None: ...

    def on_start(self, running: RunningAttempt) -> None: ...

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None: ...

    def on_notice(self, text: str) -> None:
        self.told.append(text)


class Post:
    """A GPU monitor over two GPUs."""

    def __init__(self) -> None:
        self.driver = Driver(GPU, SECOND)
        self.slot_table = SlotTable(tuple(Slot(n, (str(n),), (f"GPU-{n}",)) for n in range(2)))
        self.notes = Notes()
        self.owners: dict[int, str | None] = {}
        self.remembered: dict[str, str] = {}
        self.gpu_monitor = GpuMonitor(
            self.driver,
            self.slot_table,
            self.notes.on_notice,
            self.owners.get,
            mind_others=True,
            remember=self._remember,
            period_s=0.01,
        )

    def _remember(self, sick: Mapping[str, str]) -> None:
        self.remembered = dict(sick)

    def run(self, key: str, pid: int) -> RunningAttempt:
        job = RunningAttempt(
            key=key,
            attempt=Attempt.from_key(key),
            entry=QueueEntry(b"train", Request()),
            slots=(self.slot_table.states[0].slot,),
            phase=Running(pid, time.time_ns() // 1000),
        )
        self.owners[pid] = key
        self.driver.held["GPU-0"][pid] = GIB
        self.slot_table.occupy(job)
        return job

    def review_until(self, wanted: str) -> None:
        """Review whatever comes until somebody is told of it."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(wanted in text for text in self.notes.told):
            assert time.monotonic() < deadline, self.notes.told
            if select.select([self.gpu_monitor], [], [], 0.1)[0]:
                self.gpu_monitor.review()

    def see(self, key: str) -> None:
        """Wait until a job was seen."""
        deadline = time.monotonic() + PATIENCE_S
        while (look := self.gpu_monitor.look()) is None or key not in look.jobs:
            assert time.monotonic() < deadline

    def end(self, job: RunningAttempt) -> AttemptUse | None:
        """Let a job end on a slot whose lease is kept."""
        self.slot_table.states[0].lease = LeaseHeld()
        use = self.gpu_monitor.on_end(job)
        self.slot_table.vacate(job)
        return use

    def review_until_free(self) -> None:
        """Review whatever comes until the next job may start on the first slot."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.slot_table.states[0].is_free:
            assert time.monotonic() < deadline
            if select.select([self.gpu_monitor], [], [], 0.1)[0]:
                self.gpu_monitor.review()


@pytest.fixture
def post() -> Iterator[Post]:
    post = Post()
    yield post
    post.driver.answers.set()
    post.gpu_monitor.stop()


def test_a_stranger_closes_a_slot_until_he_goes(post: Post) -> None:
    post.driver.held["GPU-1"][os.getpid()] = GIB
    post.review_until("GPU 1 is in use by")
    assert not post.slot_table.states[1].is_open
    post.driver.held["GPU-1"].clear()
    post.review_until("GPU 1 is free again")
    assert post.slot_table.states[1].is_open


def test_a_stranger_whom_proc_does_not_show_closes_a_slot_whenever_he_comes(post: Post) -> None:
    post.run("1.1", os.getpid())
    post.driver.held["GPU-1"][FAR_PID] = GIB
    post.review_until("GPU 1 is in use by someone outside this container")
    assert not post.slot_table.states[1].is_open


def test_whoever_appears_where_a_job_is_about_to_start_is_no_stranger(post: Post) -> None:
    post.gpu_monitor.rest()
    job = post.run("1.1", os.getpid())
    job.phase = STARTING
    post.driver.held["GPU-0"] = {FAR_PID: GIB}
    post.gpu_monitor.rouse()

    assert post.slot_table.states[0].is_open


def test_a_sick_gpu_is_closed_named_and_remembered_until_somebody_sees_to_it(post: Post) -> None:
    post.driver.faults.put(Fault("GPU-1", 79))
    post.review_until("GPU 1 is sick: XID 79, fell off the bus")

    assert post.remembered.keys() == {"GPU-1"}
    assert "stoker gpus add 1" in (post.slot_table.states[1].fault or "")
    look = post.gpu_monitor.look()
    assert look is not None
    assert not look.gpus["GPU-1"].may_be_packed
    post.gpu_monitor.forgive(("GPU-1",))
    assert post.slot_table.states[1].is_open
    assert post.remembered == {}


def test_a_program_s_own_fault_is_held_against_it_and_not_against_the_gpu(post: Post) -> None:
    job = post.run("1.1", os.getpid())
    post.driver.faults.put(Fault("GPU-0", 31))
    post.driver.faults.put(Fault("GPU-1", 79))
    post.review_until("GPU 1 is sick")

    assert post.gpu_monitor.xid_of(job) == 31
    assert post.slot_table.states[0].is_open


def test_the_slot_of_a_job_that_ended_is_free_once_its_memory_is_back(post: Post) -> None:
    job = post.run("1.1", os.getpid())
    post.see("1.1")

    use = post.end(job)

    assert use is not None
    assert use.mem_peak_bytes == GIB
    assert not post.slot_table.states[0].is_free
    post.driver.held["GPU-0"].clear()
    post.review_until_free()


def test_the_slot_of_a_job_that_ended_is_free_in_the_end_where_the_driver_hangs(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.gpus.memory_release.PATIENCE_S", 0.1)
    job = post.run("1.1", os.getpid())
    post.see("1.1")
    post.driver.answers.clear()

    post.end(job)

    post.review_until_free()


def test_a_job_that_ends_while_the_driver_hangs_leaves_its_slot_at_once(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = post.run("1.1", os.getpid())
    post.see("1.1")
    post.driver.answers.clear()
    monkeypatch.setattr("stoker.engine.gpu_monitor._STALE_S", -1.0)

    post.end(job)

    assert post.slot_table.states[0].is_free
    assert any("does not answer" in text for text in post.notes.told)


def test_a_hung_driver_is_reported_and_delays_nothing(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.engine.gpu_monitor._FIRST_LOOK_S", 0.01)
    monkeypatch.setattr("stoker.engine.gpu_monitor._STALE_S", 0.0)
    post.gpu_monitor.rest()
    post.driver.answers.clear()

    post.gpu_monitor.rouse()

    assert any("does not answer" in text for text in post.notes.told)
    assert post.gpu_monitor.look() is None


def test_a_driver_without_process_memory_is_reported_once(post: Post) -> None:
    post.run("1.1", os.getpid())
    del post.driver.held["GPU-0"][os.getpid()]
    post.driver.held["GPU-0"][FAR_PID] = GIB
    post.review_until("does not report the memory of each process")
    post.gpu_monitor.look_again()

    assert sum("does not report the memory" in text for text in post.notes.told) == 1
