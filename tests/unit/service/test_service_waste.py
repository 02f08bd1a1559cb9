"""Marks and ends of jobs that waste a GPU, from their files and samples to the record."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse, JobUse, Look
from stoker.core.waste import Output
from stoker.engine.gpu_features import GpuSource, Sample
from stoker.engine.waste_monitor import Subject
from stoker.service import waste
from stoker.service.ls import ls
from stoker.service.waste import OutputReader, review
from stoker.wire import Job, JobMark, LsQuery, NewJob, NewRun
from unit.engine.engine_harness import Harness, MakeHarness

MIN = 60.0
GIB = 2**30


class Gpus(GpuSource):
    """A monitor that shows the samples of the test."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.samples: dict[str, list[Sample]] = {}

    def look(self) -> Look | None:
        alone = AttemptUse(alone=True)
        jobs = {key: JobUse(key=key, so_far=alone) for key in self.samples}
        return Look(at_s=self._harness.now, gpus={}, jobs=jobs)

    def history_of(self, attempt: str) -> list[Sample]:
        return self.samples.get(attempt, [])


class World:
    """A queue whose jobs write and compute as the test says, reviewed every ten seconds."""

    def __init__(self, harness: Harness, tmp_path: Path) -> None:
        self.harness = harness
        self.tmp_path = tmp_path
        self.gpus = Gpus(harness)
        self.reader = OutputReader()
        self.watch()

    def watch(self) -> None:
        self.harness.engine.gpus.monitor = self.gpus

    def go_on(
        self, minutes: float, sm_pct: float | None = None, line: str = "", key: str = "1.1"
    ) -> None:
        """Let time pass; a job computes so much, and writes this every ten seconds."""
        for _ in range(round(minutes * 6)):
            self.harness.now += 10
            running = self.harness.engine.slot_table.running.get(key)
            if sm_pct is not None:
                samples = self.gpus.samples.setdefault(key, [])
                samples.append((self.harness.now, 12 * GIB, sm_pct))
                del samples[:-300]
            if running is not None and running.log is not None:
                with open(running.log, "a") as file:
                    file.write(line)
            self.review()

    def review(self) -> None:
        self.harness.run(review(self.harness.context, self.reader))
        self.harness.settle()

    def mark(self, job: int = 1) -> JobMark | None:
        [found] = self.jobs(ids=str(job))
        return found.mark

    def text(self, job: int = 1) -> str | None:
        mark = self.mark(job)
        return None if mark is None else f"{mark.kind.value}: {mark.text}"

    def jobs(self, **query: Any) -> list[Job]:
        return ls(self.harness.context, LsQuery(**query)).jobs

    def failure(self, job: int = 1) -> object:
        return self.harness.column("failure", job)


@pytest.fixture
def world(harness: Harness, tmp_path: Path) -> World:
    return World(harness, tmp_path)


def test_marks_come_and_go_and_end_nothing(world: World) -> None:
    world.harness.add("train")
    world.go_on(1, 70.0, "step\n")
    assert world.mark() is None
    world.go_on(16, 0.0, "step\n")
    assert world.text() == "idle: 16m without computing, holds 12.0 GiB"
    assert world.harness.why(1).endswith("; idle: 16m without computing, holds 12.0 GiB")
    world.go_on(31, 0.0)
    assert world.text() == "stalled: 31m without output, metric or change of GPU use (0 %)"
    world.go_on(1, 70.0, "loss nan\n")
    assert world.text() == "diverged: loss is nan in its log"
    world.go_on(1, 70.0, "loss 0.5\n")
    assert world.mark() is None
    assert world.harness.states() == {1: "running"}
    assert world.harness.notices() == ""


def test_a_loss_in_the_log_that_becomes_infinite_counts_and_an_initial_one_does_not(
    world: World,
) -> None:
    world.harness.add("train")
    world.go_on(2, 70.0, "loss inf\n")
    assert world.mark() is None
    world.go_on(2, 70.0, "loss 0.5\n")
    world.go_on(1, 70.0, "loss inf\n")
    assert world.text() == "diverged: loss is infinite in its log"


def test_a_diverged_job_is_ended_and_not_tried_again(world: World) -> None:
    world.harness.add("train", on_nan="stop", retries=3)
    world.go_on(1, 70.0, "{'loss': nan}\n")
    reason = "diverged: loss is nan in its log (--on-nan stop)"
    assert world.harness.attempts(1) == [(1, "failed", reason)]
    assert world.failure() == "diverged"
    assert world.harness.executor.signals == [("1.1", 15)]


def test_a_stalled_job_is_ended_and_tried_again_as_its_retries_allow(world: World) -> None:
    world.harness.add("train", stall_s=5 * MIN, retries=1)
    world.go_on(1, 100.0, "step\n")
    world.go_on(5, 100.0)
    assert world.harness.executor.running == ["1.2"]
    world.go_on(1, 100.0, "step\n", key="1.2")
    world.go_on(5, 100.0, key="1.2")
    reason = "stalled: 5m without output, metric or change of GPU use (100 %) (--stall 5m)"
    assert world.harness.attempts(1) == [(1, "failed", reason), (2, "failed", reason)]
    assert world.failure() == "stalled"


def test_an_idle_job_is_ended_with_its_reason(world: World) -> None:
    world.harness.add("train", idle_s=5 * MIN)
    world.go_on(6, 0.0, "step\n")
    reason = "idle: 5m without computing, holds 12.0 GiB (--idle 5m)"
    assert world.harness.attempts(1) == [(1, "failed", reason)]
    assert world.failure() == "idle"


def test_a_job_that_ends_well_when_it_is_stopped_has_failed_all_the_same(world: World) -> None:
    world.harness.executor.ignore_signals("1.1")
    world.harness.add("train", on_nan="stop", grace_s=600)
    world.go_on(1, 70.0, "loss nan\n")
    world.harness.end("1.1", 0)
    assert world.harness.states() == {1: "failed"}


def test_a_job_that_is_killed_meanwhile_is_killed(world: World) -> None:
    world.harness.executor.ignore_signals("1.1")
    world.harness.add("train", stall_s=MIN, retries=1, grace_s=600)
    world.go_on(1, 70.0, "step\n")
    world.go_on(2, 70.0)
    assert world.mark() is None
    assert "is being ended: stalled" in world.harness.why(1)
    world.harness.kill("1")
    world.harness.end("1.1", 15)
    assert world.harness.attempts(1) == [(1, "killed", "killed by request")]


def test_settings_of_a_project_count_and_an_option_of_the_job_wins(world: World) -> None:
    for name, value in (("on-nan.p", "stop"), ("stall.p", "5m"), ("idle.p", "10m")):
        world.harness.config(name, value)
    world.harness.add("own", project="p", on_nan="mark", stall_s=0, idle_s=0)
    world.harness.add("theirs", project="p")
    world.go_on(20, 0.0, "loss nan\n")
    world.go_on(10, 0.0)
    assert world.text(1) == "diverged: loss is nan in its log"
    world.go_on(1, 70.0, "loss nan\n", key="2.1")
    reason = "diverged: loss is nan in its log (on-nan.p stop)"
    assert world.harness.attempts(2) == [(1, "failed", reason)]


def test_marks_can_be_switched_off(world: World) -> None:
    world.harness.config("mark.stall", "never")
    world.harness.config("mark.idle", "never")
    world.harness.add("train")
    world.go_on(60, 0.0)
    assert world.mark() is None


def test_a_review_comes_sooner_where_a_limit_is_short(world: World) -> None:
    world.harness.add("train")
    world.review()
    assert world.harness.context.waste.pause_s == 10
    world.harness.add("train", stall_s=20)
    world.review()
    assert world.harness.context.waste.pause_s == 5
    world.harness.config("mark.idle", "1s")
    world.review()
    assert world.harness.context.waste.pause_s == 1


def test_a_paused_job_wastes_nothing(world: World) -> None:
    world.harness.add("train", stall_s=5 * MIN, on_nan="stop")
    world.go_on(1, 70.0, "step\n")
    world.harness.pause("1")
    world.go_on(60, 0.0)
    assert world.harness.states() == {1: "paused"}
    assert world.mark() is None
    world.harness.resume("1")
    world.go_on(4, 0.0)
    assert world.mark() is None
    world.go_on(2, 0.0)
    assert world.failure() == "stalled"


def test_interactive_jobs_are_left_to_their_own_limits(world: World) -> None:
    world.harness.add("bash", interactive="terminal", client="0" * 32)
    world.go_on(60, 0.0)
    assert world.mark() is None
    assert not world.harness.context.waste.is_watching


def test_jobs_without_a_view_of_the_gpu_are_judged_by_their_values_alone(world: World) -> None:
    world.harness.add("train")
    world.harness.add("prepare", gpus=0)
    world.harness.engine.gpus.monitor = None
    world.go_on(120)
    assert (world.mark(1), world.mark(2)) == (None, None)
    world.go_on(1, line="loss nan\n", key="2.1")
    assert world.text(2) == "diverged: loss is nan in its log"


def test_a_node_that_cannot_be_reached_keeps_no_job_from_going_on(
    make_harness: MakeHarness, tmp_path: Path
) -> None:
    nodes = (NodeFacts(name="here"), NodeFacts(name="there"))
    slots = (Slot(0, ("there/0",), ("there:GPU-0",), "there"),)
    world = World(make_harness(gpus=slots, nodes=nodes), tmp_path)
    world.harness.add("train", stall_s=5 * MIN)
    world.go_on(1, line="step\n")
    table = world.harness.engine.slot_table
    table.update_node(NodeFacts(name="there", away="its connection is cut"))
    world.go_on(60)
    assert world.harness.states() == {1: "running"}
    table.update_node(NodeFacts(name="there"))
    world.go_on(6)
    assert world.failure() == "stalled"


def test_after_a_restart_clocks_begin_again_and_values_are_found_again(world: World) -> None:
    world.harness.add("train", stall_s=10 * MIN)
    world.harness.add("train")
    world.go_on(1, 70.0, "loss nan\n", key="2.1")
    world.go_on(9, 70.0)
    world.harness.restart()
    world.watch()
    world.go_on(5, 70.0)
    assert world.harness.states() == {1: "running", 2: "running"}
    assert world.mark(1) is None
    assert world.text(2) == "diverged: loss is nan in its log"


def test_an_end_that_was_decided_before_a_crash_keeps_its_class(world: World) -> None:
    world.harness.executor.ignore_signals("1.1")
    world.harness.add("train", on_nan="stop", retries=2, grace_s=600)
    world.go_on(1, 70.0, "loss nan\n")
    world.harness.restart()
    world.harness.settle()
    world.harness.end("1.1", 15)
    assert world.harness.states() == {1: "failed"}
    assert world.failure() == "diverged"


def test_metrics_of_a_sweep_count_from_this_attempt_on(world: World) -> None:
    folder = world.tmp_path / "run"
    folder.mkdir()
    lines = [{"time": world.harness.now - 1, "step": step, "loss": "nan"} for step in range(5)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = NewRun(identity="0" * 64, dir=str(folder), params="{}")
    world.harness.add(NewJob(command="train", run=run), sweep="s", project="s", on_nan="stop")
    world.go_on(1, 70.0)
    assert world.mark() is None
    for step in range(120, 123):
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"time": world.harness.now, "step": step, "loss": "nan"}) + "\n")
    world.go_on(0.2, 70.0)
    reason = "diverged: loss is nan since step 120 (--on-nan stop)"
    assert world.harness.attempts(1) == [(1, "failed", reason)]


def test_diverged_runs_do_not_pause_their_project(world: World) -> None:
    world.harness.add(*["train"] * 6, project="p", on_nan="stop")
    for job in range(1, 6):
        world.go_on(1, 70.0, "loss nan\n", key=f"{job}.1")
    assert [world.failure(job) for job in range(1, 6)] == ["diverged"] * 5
    assert not world.harness.context.admission.projects_paused


def test_a_limit_on_failures_counts_diverged_runs(world: World) -> None:
    world.harness.config("max-failures.p", "2")
    world.harness.add(*["train"] * 4, project="p", on_nan="stop")
    for job in (1, 2):
        world.go_on(1, 70.0, "loss nan\n", key=f"{job}.1")
    assert "p" in world.harness.context.admission.projects_paused


class Told:
    """What hooks would have been run for."""

    def __init__(self, world: World) -> None:
        self.marks: list[tuple[str, str, bool]] = []
        world.harness.context.hooks.on_mark = self.note  # type: ignore[method-assign]

    def note(self, running: Any, mark: Any, *, notifies: bool) -> None:
        self.marks.append((running.key, mark.kind.value, notifies))


def test_hooks_are_told_once_of_each_mark(world: World) -> None:
    told = Told(world)
    world.harness.add("train")
    for _ in range(2):
        world.go_on(16, 0.0, "loss nan\n")
        world.go_on(1, 70.0, "loss 1\n")
    assert told.marks == [("1.1", "diverged", False), ("1.1", "idle", False)]


def test_notify_sends_a_message_and_is_shown_by_status(world: World) -> None:
    told = Told(world)
    notice = world.harness.add("train", on_nan="notify").notice
    assert notice is not None
    assert "stoker config notify URL" in notice
    world.go_on(5, 70.0, "loss nan\n")
    assert told.marks == [("1.1", "diverged", True)]
    assert world.harness.notices().endswith("job 1 has diverged: loss is nan in its log")
    assert world.harness.states() == {1: "running"}


def test_who_watches_the_queue_learns_of_a_mark_and_of_its_end(world: World) -> None:
    world.harness.add("train")
    world.go_on(1, 70.0, "step\n")
    events = world.harness.context.events

    def changes(act: Callable[[], None]) -> bool:
        before = events.version
        act()
        return events.version != before

    assert not changes(lambda: world.go_on(1, 70.0, "step\n"))
    assert changes(lambda: world.go_on(1, 70.0, "loss nan\n"))
    assert not changes(lambda: world.go_on(1, 70.0, "loss nan\n"))
    assert changes(lambda: world.go_on(1, 70.0, "loss 1\n"))


def test_short_jobs_cost_no_look_at_their_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    look = Subject.read

    def note(subject: Subject) -> Output | None:
        read.append(subject.running.key)
        return look(subject)

    monkeypatch.setattr(Subject, "read", note)
    world.harness.add("short", "long")
    world.review()
    world.harness.end("1.1")
    world.review()
    assert read == ["2.1"]


class Hanging:
    """A subject whose file system hangs until the test lets it go on."""

    def __init__(self, key: str) -> None:
        self.running = type("Running", (), {"key": key})()
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.is_read = threading.Event()

    def read(self) -> Output:
        self.hangs.set()
        self.goes_on.wait()
        self.is_read.set()
        return Output()


def test_a_file_system_that_hangs_keeps_only_its_own_jobs_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waste, "_PATIENCE_S", 0.05)

    async def story() -> None:
        reader = OutputReader()
        slow, quick = Hanging("1.1"), Hanging("2.1")
        quick.goes_on.set()
        subjects: Any = [slow, quick]
        assert await reader.read(subjects, 60.0) == {"1.1": None}
        monkeypatch.setattr(waste, "_PATIENCE_S", 60.0)
        assert await reader.read(subjects, 60.0) == {"1.1": None, "2.1": Output()}
        slow.goes_on.set()
        while (found := await reader.read(subjects, 60.0))["1.1"] is None:
            await asyncio.sleep(0.001)
        assert found == {"1.1": Output(), "2.1": Output()}

    asyncio.run(story())


def test_only_a_few_threads_hang_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waste, "_PATIENCE_S", 0.01)
    subjects: Any = [Hanging(f"{number}.1") for number in range(1, 8)]

    async def story() -> None:
        reader = OutputReader()
        while sum(each.hangs.is_set() for each in subjects) < 4:
            await reader.read(subjects, 60.0)
        for _ in range(3):
            found = await reader.read(subjects, 60.0)
            assert found == dict.fromkeys(each.running.key for each in subjects)
        assert sum(each.hangs.is_set() for each in subjects) == 4
        for each in subjects:
            each.goes_on.set()

    asyncio.run(story())


def test_jobs_for_which_no_time_is_left_come_first_in_the_next_read() -> None:
    class Busy(Hanging):
        def read(self) -> Output:
            begun = time.thread_time()
            while time.thread_time() - begun < 0.005:
                pass
            return Output()

    subjects: Any = [Busy("1.1"), Busy("2.1"), Busy("3.1")]

    async def story() -> list[list[str]]:
        reader = OutputReader()
        return [[*await reader.read(subjects, 0.001)] for _ in range(4)]

    assert asyncio.run(story()) == [["1.1"], ["2.1"], ["3.1"], ["1.1"]]


def test_jobs_that_write_to_one_log_are_not_marked_for_each_others_losses(world: World) -> None:
    log = str(world.tmp_path / "both.log")
    world.harness.add("one", log=log, on_nan="stop")
    world.harness.add("other", log=log, on_nan="stop")
    world.go_on(2, 70.0, "loss nan\n")
    assert world.harness.states() == {1: "running", 2: "running"}
    world.harness.end("2.1")
    world.go_on(1, 70.0, "loss nan\n")
    assert world.failure(1) == "diverged"


def test_a_log_that_is_a_pipe_is_not_opened(world: World) -> None:
    path = world.tmp_path / "pipe"
    os.mkfifo(path)
    world.harness.add("train", log=str(path), stall_s=5 * MIN)
    for _ in range(60):
        world.harness.now += 10
        world.review()
    assert world.harness.states() == {1: "running"}
