"""Runs of sweeps in the daemon's queue: their folders, and the record of what has succeeded."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from stoker.core.lifecycle import State
from stoker.engine.service.sweep import sweep
from stoker.errors import UsageError
from stoker.wire import NewJob, NewRun

if TYPE_CHECKING:
    from unit.engine.world import World

FAILED = 1 << 8


def new_run(world: World, number: int) -> NewJob:
    identity = hashlib.sha256(str(number).encode()).hexdigest()
    folder = str(world.home / "results" / str(number))
    return NewJob(
        command=f"train {number}",
        run=NewRun(identity=identity, dir=folder, params=json.dumps({"n": number})),
    )


def states(world: World, name: str = "s", limit: int = 1000) -> list[tuple[int, State]]:
    page = sweep(world.hub, name, str(world.home), after=0, limit=limit)
    return [(run.job, run.state) for run in page.runs]


def test_a_run_starts_in_its_folder_which_is_made_then(world: World) -> None:
    world.add(*(new_run(world, number) for number in range(3)), sweep="s")

    launch = world.executor.launched[0]
    folder = world.home / "results" / "0"
    assert launch.argv[-2:] == ["-c", "train 0"] or launch.argv[-2:] == ["train", "0"]
    assert str(folder) in launch.argv
    assert launch.log == str(folder / "log.txt")
    assert json.loads((folder / "params.json").read_text()) == {"n": 0}
    assert not (world.home / "results" / "2").exists()  # it waits


def test_a_success_outlives_its_job_and_a_failure_does_not(world: World) -> None:
    world.add(new_run(world, 0), new_run(world, 1), sweep="s")
    world.end("1.1")
    world.end("2.1", FAILED)
    assert states(world) == [(1, State.DONE), (2, State.FAILED)]

    world.rm("1-2")

    assert world.states() == {}
    assert states(world) == [(1, State.DONE)]
    assert (world.home / "results" / "0" / "params.json").exists()
    world.restart()
    assert states(world) == [(1, State.DONE)]


def test_sweeps_of_other_names_and_folders_are_others(world: World) -> None:
    world.add(new_run(world, 0), sweep="s")
    world.add(new_run(world, 0), sweep="t")

    assert [job for job, _state in states(world, "s")] == [1]
    assert [job for job, _state in states(world, "t")] == [2]
    assert sweep(world.hub, "s", "/elsewhere", after=0, limit=10).runs == []


def test_runs_come_in_pages(world: World) -> None:
    world.add(*(new_run(world, number) for number in range(250)), sweep="s")

    first = sweep(world.hub, "s", str(world.home), after=0, limit=100)
    assert (len(first.runs), first.next) == (100, 100)
    last = sweep(world.hub, "s", str(world.home), after=200, limit=100)
    assert [run.job for run in last.runs] == list(range(201, 251))
    assert last.next is None
    assert last.runs[0].identity == hashlib.sha256(b"200").hexdigest()


def test_more_runs_than_a_slice_are_all_recorded(world: World) -> None:
    world.add(*(new_run(world, number) for number in range(1234)), sweep="s")

    assert len(states(world, limit=10_000)) == 1234
    recorded = world.database.execute("SELECT count(*), min(job), max(job) FROM sweep_run")
    assert recorded.fetchone() == (1234, 1, 1234)


def test_runs_and_other_jobs_may_come_together(world: World) -> None:
    plain = [NewJob(command="plain")] * 150
    world.add(*(new_run(world, n) for n in range(150)), *plain, sweep="s")

    assert len(states(world)) == 150
    assert len(world.states()) == 300


def test_a_run_without_a_sweep_or_with_a_relative_folder_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match="names none"):
        world.add(new_run(world, 0))
    odd = NewJob(command="x", run=NewRun(identity="0" * 64, dir="results", params="{}"))
    with pytest.raises(UsageError, match="no absolute path"):
        world.add(odd, sweep="s")
    for identity in ("x" * 64, f"{'0' * 62}  "):
        odd = NewJob(command="x", run=NewRun(identity=identity, dir="/r", params="{}"))
        with pytest.raises(UsageError, match="no sha256"):
            world.add(odd, sweep="s")
    assert world.states() == {}


def test_a_folder_that_cannot_be_made_fails_that_run_alone(world: World) -> None:
    (world.home / "results").mkdir()
    (world.home / "results" / "0").write_text("a file")

    world.add(new_run(world, 0), new_run(world, 1), sweep="s")

    assert world.states()[1] == "failed"
    assert world.states()[2] == "running"


def test_parameters_written_once_stay_as_they_are(world: World) -> None:
    folder = world.home / "results" / "0"
    folder.mkdir(parents=True)
    (folder / "params.json").write_text("mine")

    world.add(new_run(world, 0), sweep="s")

    assert (folder / "params.json").read_text() == "mine"
