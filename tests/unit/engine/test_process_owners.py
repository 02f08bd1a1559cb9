"""Whose a process is, by descent and by cookie."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from stoker.core.job import Attempt, Request
from stoker.engine.process_owners import ProcessOwners
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import STARTING, Running, RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.supervisor.process_tree import COOKIE, MARKER, read_marks

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with these variables; its pid."""
    started = []

    def make(**env: str) -> int:
        clean = {name: value for name, value in os.environ.items() if name != COOKIE}
        process = subprocess.Popen(["sleep", "60"], env={**clean, **env})
        started.append(process)
        while read_marks(process.pid).is_blank:  # it is still exchanging its program
            assert process.poll() is None
        return process.pid

    yield make
    for process in started:
        process.kill()
        process.wait()


def owners(pid: int | None = None, parents: tuple[int, ...] = ()) -> ProcessOwners:
    slot_table = SlotTable(())
    slot_table.occupy(
        RunningAttempt(
            key="7.1",
            attempt=Attempt(7, 1),
            entry=QueueEntry(b"", Request()),
            slots=(),
            phase=STARTING if pid is None else Running(pid, started_at_us=0),
        )
    )
    return ProcessOwners(slot_table, "stoker-x", lambda: list(parents))


def test_what_descends_from_an_attempt_is_the_attempt_s(start: Start) -> None:
    assert owners(pid=os.getpid())(start()) == "7.1"


def test_what_was_orphaned_is_known_by_its_cookie(start: Start) -> None:
    assert owners()(start(**{COOKIE: "stoker-x:9.2"})) == "9.2"
    assert owners()(start(**{COOKIE: "stoker-other:9.2"})) is None


def test_a_job_of_a_job_is_the_innermost_s(start: Start) -> None:
    assert owners()(start(**{COOKIE: "stoker-x:7.1/stoker-x:9.2"})) == "9.2"


def test_what_is_below_us_and_of_no_attempt_is_ours_all_the_same(start: Start) -> None:
    assert owners(parents=(os.getpid(),))(start()) == ""


def test_a_part_of_stoker_s_own_is_no_stranger(start: Start) -> None:
    assert owners()(start(**{MARKER: "mps"})) == ""


def test_all_others_are_strangers(start: Start) -> None:
    assert owners()(start()) is None
    assert owners()(1) is None
