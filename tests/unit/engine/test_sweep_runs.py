"""Runs of sweeps in the daemon's queue: their folders, and the record of what has succeeded."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from stoker.core.lifecycle import State
from stoker.errors import UsageError
from stoker.service.sweep import sweep
from stoker.wire import NewJob, NewRun, SweepQuery

if TYPE_CHECKING:
    from unit.engine.engine_harness import Harness

FAILED = 1 << 8


def new_run(harness: Harness, number: int) -> NewJob:
    identity = hashlib.sha256(str(number).encode()).hexdigest()
    folder = str(harness.home / "results" / str(number))
    return NewJob(
        command=f"train {number}",
        run=NewRun(identity=identity, dir=folder, params=json.dumps({"n": number})),
    )


def states(harness: Harness, name: str = "s", limit: int = 1000) -> list[tuple[int, State]]:
    page = sweep(
        harness.context, SweepQuery(name=name, cwd=str(harness.home), after=0, limit=limit)
    )
    return [(run.job, run.state) for run in page.runs]


def test_a_run_starts_in_its_folder_which_is_made_then(harness: Harness) -> None:
    harness.add(*(new_run(harness, number) for number in range(3)), sweep="s")

    launch = harness.executor.launched[0]
    folder = harness.home / "results" / "0"
    assert launch.argv[-2:] == ["-c", "train 0"] or launch.argv[-2:] == ["train", "0"]
    assert str(folder) in launch.argv
    assert launch.log == str(folder / "log.txt")
    assert json.loads((folder / "params.json").read_text()) == {"n": 0}
    assert not (harness.home / "results" / "2").exists()  # it waits


def test_a_success_outlives_its_job_and_a_failure_does_not(harness: Harness) -> None:
    harness.add(new_run(harness, 0), new_run(harness, 1), sweep="s")
    harness.end("1.1")
    harness.end("2.1", FAILED)
    assert states(harness) == [(1, State.DONE), (2, State.FAILED)]

    harness.rm("1-2")

    assert harness.states() == {}
    assert states(harness) == [(1, State.DONE)]
    assert (harness.home / "results" / "0" / "params.json").exists()
    harness.restart()
    assert states(harness) == [(1, State.DONE)]


def test_sweeps_of_other_names_and_folders_are_others(harness: Harness) -> None:
    harness.add(new_run(harness, 0), sweep="s")
    harness.add(new_run(harness, 0), sweep="t")

    assert [job for job, _state in states(harness, "s")] == [1]
    assert [job for job, _state in states(harness, "t")] == [2]
    assert (
        sweep(harness.context, SweepQuery(name="s", cwd="/elsewhere", after=0, limit=10)).runs == []
    )


def test_runs_come_in_pages(harness: Harness) -> None:
    harness.add(*(new_run(harness, number) for number in range(250)), sweep="s")

    first = sweep(harness.context, SweepQuery(name="s", cwd=str(harness.home), after=0, limit=100))
    assert (len(first.runs), first.next) == (100, 100)
    last = sweep(harness.context, SweepQuery(name="s", cwd=str(harness.home), after=200, limit=100))
    assert [run.job for run in last.runs] == list(range(201, 251))
    assert last.next is None
    assert last.runs[0].identity == hashlib.sha256(b"200").hexdigest()


def test_more_runs_than_a_slice_are_all_recorded(harness: Harness) -> None:
    harness.add(*(new_run(harness, number) for number in range(1234)), sweep="s")

    assert len(states(harness, limit=10_000)) == 1234
    recorded = harness.database.execute("SELECT count(*), min(job), max(job) FROM sweep_run")
    assert recorded.fetchone() == (1234, 1, 1234)


def test_runs_and_other_jobs_may_come_together(harness: Harness) -> None:
    plain = [NewJob(command="plain")] * 150
    harness.add(*(new_run(harness, n) for n in range(150)), *plain, sweep="s")

    assert len(states(harness)) == 150
    assert len(harness.states()) == 300


def test_a_run_without_a_sweep_or_with_a_relative_folder_is_refused(harness: Harness) -> None:
    with pytest.raises(UsageError, match="names none"):
        harness.add(new_run(harness, 0))
    odd = NewJob(command="x", run=NewRun(identity="0" * 64, dir="results", params="{}"))
    with pytest.raises(UsageError, match="no absolute path"):
        harness.add(odd, sweep="s")
    for identity in ("x" * 64, f"{'0' * 62}  "):
        odd = NewJob(command="x", run=NewRun(identity=identity, dir="/r", params="{}"))
        with pytest.raises(UsageError, match="no sha256"):
            harness.add(odd, sweep="s")
    assert harness.states() == {}


def test_a_folder_that_cannot_be_made_fails_that_run_alone(harness: Harness) -> None:
    (harness.home / "results").mkdir()
    (harness.home / "results" / "0").write_text("a file")

    harness.add(new_run(harness, 0), new_run(harness, 1), sweep="s")

    assert harness.states()[1] == "failed"
    assert harness.states()[2] == "running"


def test_parameters_written_once_stay_as_they_are(harness: Harness) -> None:
    folder = harness.home / "results" / "0"
    folder.mkdir(parents=True)
    (folder / "params.json").write_text("mine")

    harness.add(new_run(harness, 0), sweep="s")

    assert (folder / "params.json").read_text() == "mine"
