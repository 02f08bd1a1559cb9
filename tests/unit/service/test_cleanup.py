"""What is kept, what is forgotten, and what is cut."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.errors import StokerError
from stoker.service import cleanup
from stoker.service.cleanup import cap_logs_for_ever, cut_log, prune, prune_for_ever
from stoker.service.rm import forget
from unit.engine.engine_harness import FAILED, Harness, MakeHarness

DAY_S = 86400


@pytest.fixture
def old(make_harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """Return a harness whose time is that of the fake clock, for retention too."""
    harness = make_harness(gpus=1)
    monkeypatch.setattr("stoker.engine.trusted_time.time.time", lambda: harness.now)
    harness.now = 1000.0 * DAY_S
    return harness


def end_some(harness: Harness, *statuses: int, days_ago: float = 0.0) -> list[int]:
    """Let jobs end so many days ago; their ids."""
    now, harness.now = harness.now, harness.now - days_ago * DAY_S
    jobs = []
    for status in statuses:
        job = harness.add("a").first
        harness.now += 1
        harness.end(f"{job}.1", status)
        jobs.append(job)
    harness.now = now
    return jobs


def keep(harness: Harness, **settings: int) -> None:
    for name, value in settings.items():
        harness.context.config.change(f"keep.{name}", str(value))


def tidy(harness: Harness) -> set[int]:
    """What is left after pruning."""
    harness.run(prune(harness.context))
    harness.check()
    return set(harness.states())


def test_jobs_that_ended_long_ago_are_forgotten_with_their_logs(old: Harness) -> None:
    keep(old, days=30)
    end_some(old, 0, 0, days_ago=31)
    recent = end_some(old, 0, days_ago=29)
    log = old.home / "logs" / "0" / "1.1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()

    assert tidy(old) == set(recent)
    assert not log.exists()


def test_what_has_not_ended_is_never_forgotten(old: Harness) -> None:
    keep(old, days=1, jobs=0)
    old.add("a", "b")
    old.now += 100 * DAY_S

    assert tidy(old) == {1, 2}


def test_of_too_many_the_oldest_go_and_what_failed_last(old: Harness) -> None:
    keep(old, jobs=3)
    end_some(old, FAILED, 0, 0, FAILED, 0)

    assert tidy(old) == {1, 4, 5}


def test_when_only_failures_are_left_the_oldest_go_and_people_are_told(old: Harness) -> None:
    keep(old, jobs=2)
    end_some(old, FAILED, FAILED, FAILED, FAILED)

    assert tidy(old) == {3, 4}
    assert "forgot 2 old jobs that had not succeeded" in old.notices()


def test_of_successes_nobody_is_told(old: Harness) -> None:
    keep(old, jobs=0)
    end_some(old, 0, 0)

    assert tidy(old) == set()
    assert old.notices() == ""


def test_age_and_number_count_at_once(old: Harness) -> None:
    keep(old, days=30, jobs=2)
    end_some(old, 0, 0, days_ago=40)
    end_some(old, 0, 0, 0, 0)

    assert tidy(old) == {5, 6}


def test_great_numbers_go_in_slices(old: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_SLICE", 3)
    monkeypatch.setattr(cleanup, "_PAUSE_S", 0.0)
    keep(old, jobs=1)
    end_some(old, *[0] * 10)
    turns = []

    def look_and_forget(context: QueueContext, rows: list[tuple[int, State]]) -> None:
        turns.append(len(rows))
        forget(context, rows)

    monkeypatch.setattr(cleanup, "forget", look_and_forget)

    assert tidy(old) == {10}
    assert turns == [3, 3, 3]


def test_submissions_and_environments_without_jobs_go_too(old: Harness) -> None:
    keep(old, days=30)
    now, old.now = old.now, old.now - 40 * DAY_S
    old.add("a", env={"A": "old"})
    old.end("1.1")
    old.now = now
    old.database.write("UPDATE submission SET submitted_at_us = 1", ())
    old.database.commit()
    old.add("b", env={"A": "new"})
    tidy(old)

    assert old.database.execute("SELECT count(*) FROM submission").fetchone() == (1,)
    assert old.database.execute("SELECT block FROM environment").fetchall() == [(b"A=new\0",)]


class TestSnapshots:
    def make(self, harness: Harness, name: str, days_old: float) -> Path:
        folder = harness.home / "snapshots" / name
        folder.mkdir(parents=True)
        (folder / "train.py").write_text("")
        when = harness.now - days_old * DAY_S
        os.utime(folder, (when, when))
        return folder

    def test_those_that_no_job_can_run_from_are_deleted(self, old: Harness) -> None:
        unused, left_over = self.make(old, "unused", 2), self.make(old, ".new-abc", 2)
        tidy(old)

        assert not unused.exists()
        assert not left_over.exists()
        assert os.listdir(old.home / "snapshots") == []

    def test_those_of_a_job_stay_however_old(self, old: Harness) -> None:
        used = [self.make(old, name, 100) for name in ("one", "two")]
        old.add("a", snapshot="one")
        old.add("b", snapshot="two/sub/folder")
        tidy(old)

        assert all(folder.exists() for folder in used)

    def test_one_that_was_taken_or_wanted_again_just_now_stays(self, old: Harness) -> None:
        fresh = self.make(old, "fresh", 0.5)
        tidy(old)

        assert fresh.exists()

    def test_one_that_is_submitted_while_others_are_deleted_stays(
        self, old: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b"):
            self.make(old, name, 2)
        deleted = []

        def delete(path: str, _ignore: bool) -> None:
            deleted.append(os.path.basename(path))
            left = {"a", "b"} - {name.removeprefix(".gone-") for name in deleted}
            old.database.write(
                "UPDATE submission SET snapshot = ?", (left.pop() if left else None,)
            )
            old.database.commit()

        old.add("a")
        monkeypatch.setattr("stoker.service.cleanup.shutil.rmtree", delete)
        monkeypatch.setattr("stoker.service.cleanup.asyncio.to_thread", call_here)
        tidy(old)

        assert len(deleted) == 1

    def test_nobody_finds_half_of_one(self, old: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = self.make(old, "unused", 2)
        seen = []
        monkeypatch.setattr(
            "stoker.service.cleanup.shutil.rmtree",
            lambda path, _ignore: seen.append((path, folder.exists())),
        )
        tidy(old)
        ((path, was_there),) = seen
        assert not was_there
        assert os.path.exists(path)

        monkeypatch.undo()
        old.now = time.time()
        old.run(prune(old.context))
        assert not os.path.exists(path)


async def call_here(call: Any, *words: Any) -> Any:
    return call(*words)


def test_pruning_outlives_a_full_disk(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    async def refuse(_context: Any, _clock: Any) -> None:
        calls.append(1)
        if len(calls) < 3:
            raise StokerError("cannot write stoker.db: database or disk is full")

    monkeypatch.setattr(cleanup, "prune", refuse)
    monkeypatch.setattr(cleanup, "_PRUNE_PERIOD_S", 0.0)

    async def story() -> None:
        task = asyncio.ensure_future(prune_for_ever(harness.context))
        while len(calls) < 4:
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()

    harness.run(story())
    assert harness.notices().count("cannot forget old jobs for now: cannot write stoker.db") == 1


class TestCut:
    def test_a_log_beyond_its_cap_loses_its_middle_and_says_so(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_bytes(b"".join(b"%07d\n" % number for number in range(10_000)))
        cut_log(str(log), 8000)
        text = log.read_bytes()

        assert len(text) < 8000
        assert text.startswith(b"0000000\n0000001\n")
        assert text.endswith(b"0009998\n0009999\n")
        assert b"\n[stoker: 76000 bytes cut here: log.cap is 8000]\n" in text

    def test_one_within_its_cap_is_left_as_it_is(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_bytes(b"x" * 8000)
        cut_log(str(log), 8000)

        assert log.read_bytes() == b"x" * 8000

    def test_it_can_be_cut_again_and_again(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_bytes(b"first\n")
        for number in range(20):
            with open(log, "ab") as file:
                file.write(b"y" * 5000 + b"\nround %d\n" % number)
            cut_log(str(log), 8000)
            assert log.stat().st_size <= 8000
        assert log.read_bytes().startswith(b"first\n")
        assert log.read_bytes().endswith(b"round 19\n")

    def test_the_job_goes_on_writing_at_its_end(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        with open(log, "ab", buffering=0) as writer:
            writer.write(b"x" * 20_000)
            cut_log(str(log), 8000)
            writer.write(b"after\n")

        assert log.read_bytes().endswith(b"xafter\n")

    def test_what_is_gone_or_no_file_is_no_matter(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "gone", tmp_path / "pipe", tmp_path, Path("/dev/null")):
            cut_log(str(path), 4096)


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the logs that are cut, as soon as there is any reason to."""
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(cleanup, "cut_log", lambda path, cap: found.append((path, cap)))
    monkeypatch.setattr("stoker.service.cleanup.asyncio.to_thread", call_here)
    sleep = asyncio.sleep
    monkeypatch.setattr("stoker.service.cleanup.asyncio.sleep", lambda _seconds: sleep(0))
    return found


def test_logs_of_running_jobs_are_cut_when_a_cap_is_set_and_once_more_after_their_end(
    harness: Harness, cuts: list[tuple[str, int]]
) -> None:
    harness.add("a")
    log = str(harness.home / "logs" / "0" / "1.1.log")

    async def story() -> None:
        task = asyncio.ensure_future(cap_logs_for_ever(harness.context))
        await asyncio.sleep(0)
        assert cuts == []
        harness.context.config.change("log.cap", "4K")
        harness.context.events.touch()
        while len(cuts) < 2:
            await asyncio.sleep(0)
        harness.end("1.1")
        cuts.clear()
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()

    harness.run(story())
    assert cuts == [(log, 4096)]
    assert harness.jobs.tally() == {State.DONE: 1}


def test_the_log_of_a_job_on_another_node_is_cut_when_the_job_is_over(
    make_harness: MakeHarness, cuts: list[tuple[str, int]]
) -> None:
    harness = make_harness(gpus=2)
    harness.context.config.change("log.cap", "4K")
    harness.add("near", "far")
    running = harness.engine.slot_table.running["2.1"]
    running.slots = tuple(msgspec.structs.replace(slot, node="h1") for slot in running.slots)
    near, far = (str(harness.home / "logs" / "0" / f"{key}.log") for key in ("1.1", "2.1"))

    async def story() -> None:
        task = asyncio.ensure_future(cap_logs_for_ever(harness.context))
        while len(cuts) < 3:
            await asyncio.sleep(0)
        assert {path for path, _cap in cuts} == {near}
        harness.end("2.1")
        while (far, 4096) not in cuts:
            await asyncio.sleep(0)
        task.cancel()

    harness.run(story())


def test_empty_checkpoint_folders_of_ended_jobs_go(old: Harness) -> None:
    end_some(old, 0, 0)
    running = old.add("a").first
    folders = [old.home / "checkpoints" / "0" / str(job) for job in (1, 2, running)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    (folders[1] / "state").touch()

    tidy(old)

    assert [folder.exists() for folder in folders] == [False, True, True]
