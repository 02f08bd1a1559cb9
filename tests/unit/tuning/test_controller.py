"""Controllers of sweeps on a queue in memory, with real studies and folders."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from stoker.core.lifecycle import State
from stoker.errors import ConflictError, UsageError
from stoker.tuning.optuna_check import check_optuna
from stoker.tuning.study import Study, StudyLock
from unit.tuning.made import UNIT, FakeQueue, Steered, make_sweep, report


def _square(params: dict[str, Any]) -> float:
    return float((params["x"] - 0.3) ** 2)


@pytest.fixture
def steered(tmp_path: Path) -> Steered:
    return Steered(make_sweep(tmp_path))


def test_one_run_waits_ahead_and_another_follows_when_it_begins(steered: Steered) -> None:
    assert [run.state for run in steered.queue.jobs.values()] == [State.WAITING]

    steered.queue.run_all()
    steered.step()

    states = [run.state for run in steered.queue.jobs.values()]
    assert states == [State.RUNNING, State.WAITING]


def test_a_sweep_is_over_when_all_its_runs_have_ended(steered: Steered) -> None:
    while not steered.over():
        steered.queue.run_all(_square)
        steered.step()

    assert len(steered.queue.jobs) == 10
    assert steered.states() == ["COMPLETE"] * 10
    jobs = steered.queue.jobs.values()
    assert steered.values() == [[_square(run.params)] for run in jobs]
    folders = {run.folder for run in jobs}
    assert len(folders) == 10


def test_runs_with_the_same_parameters_have_folders_of_their_own(tmp_path: Path) -> None:
    steered = Steered(make_sweep(tmp_path, {"x": [1, 2]}))
    while not steered.over():
        steered.queue.run_all(lambda params: params["x"])
        steered.step()

    assert len({run.folder for run in steered.queue.jobs.values()}) == 10


def test_what_ended_while_no_controller_ran_is_told_once(steered: Steered) -> None:
    steered.queue.run_all(_square)

    steered.restart()
    steered.restart()

    assert steered.states() == ["COMPLETE", "RUNNING"]
    assert len(steered.queue.jobs) == 2


def test_a_trial_that_was_asked_and_not_queued_is_queued_with_the_same_parameters(
    steered: Steered,
) -> None:
    steered.queue.run_all()

    class KilledError(BaseException):
        pass

    def die() -> None:
        raise KilledError

    steered.queue.on_add = die
    with pytest.raises(KilledError):
        steered.step()
    steered.queue.on_add = lambda: None
    before = dict(steered.queue.requests)

    steered.restart()

    assert steered.queue.requests == before
    assert steered.states() == ["RUNNING", "RUNNING"]
    params = [trial.params["x"] for trial in steered.study._study.get_trials()]
    assert params == [run.params["x"] for run in steered.queue.jobs.values()]


def test_a_trial_without_all_its_parameters_gets_the_others(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, {**UNIT, "y": {"min": 1, "max": 9}})
    study = Study(sweep)
    study._study.ask().suggest_float("x", 0.0, 1.0)  # and then the process is killed

    [trial] = Study(sweep).live()

    assert set(trial.run.params) == {"x", "y"}
    assert [each.run.params for each in Study(sweep).live()] == [trial.run.params]


def test_a_run_whose_job_was_removed_failed(steered: Steered) -> None:
    steered.queue.jobs.clear()

    steered.step()

    assert steered.states()[0] == "FAIL"


def test_a_failed_run_counts_until_the_sweep_is_ordered_again(steered: Steered) -> None:
    while not steered.over():
        steered.queue.run_all()
        for run in steered.queue.jobs.values():
            run.state = State.FAILED if run.state is State.RUNNING else run.state
        steered.step()
    assert steered.states() == ["FAIL"] * 10

    steered.restart()
    assert steered.over(), "the same order"
    steered.restart("second")

    assert not steered.over()
    assert len(steered.queue.jobs) == 11


def test_a_run_that_succeeds_after_a_retry_is_known_to_the_study(steered: Steered) -> None:
    steered.queue.run_all()
    steered.queue.jobs[1].state = State.FAILED
    steered.step()
    steered.queue.jobs[1].state = State.RUNNING
    steered.step()
    report(steered.queue.jobs[1].folder, loss=0.5)
    steered.queue.jobs[1].state = State.DONE

    steered.step()

    assert [0.5] in steered.values()
    assert steered.states().count("FAIL") == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "no run has reported loss, so parameters are chosen at random until one does:"),
        ("high", "reported loss 'high', which is no number: it counts as failed"),
        ("nan", "reported loss nan: runs like it count as failed"),
        (True, "reported loss True, which is no number"),
    ],
)
def test_values_that_are_unusable_fail_their_trials_with_one_notice(
    tmp_path: Path, value: Any, told: str
) -> None:
    steered = Steered(make_sweep(tmp_path))
    while not steered.over():
        for run in steered.queue.jobs.values():
            if run.state is State.WAITING:
                report(run.folder, **({"other": 1} if value is None else {"loss": value}))
                run.state = State.DONE
        steered.step()

    assert steered.states() == ["FAIL"] * 10
    [notice] = steered.notices
    assert told in notice
    assert notice.startswith("sweep s: ")


def test_a_wrong_name_of_the_metric_is_told_once_with_what_was_reported(tmp_path: Path) -> None:
    wrong = {"metric": "val_los", "early_terminate": {"type": "median"}}
    for method in ("tpe", "grid"):
        adaptive = method == "tpe"
        parameters = None if adaptive else {"x": [1, 2, 3]}
        own = {"parameters": parameters, "method": "grid", "samples": None}
        sweep = make_sweep(tmp_path / method, **wrong, **({} if adaptive else own))
        queue = FakeQueue()
        for run in () if adaptive else sweep:
            queue.add(run, run.id)
        steered = Steered(sweep, queue)
        for _step in range(3):
            queue.run_all()
            steered.step()
            for job in queue.jobs.values():
                if job.state is State.RUNNING:
                    report(job.folder, step=1, acc=0.5, val_loss=2)
                    job.state = State.DONE
            steered.step()

        [notice] = steered.notices
        assert notice.startswith("sweep s: ")
        assert "reported acc, val_loss: did you mean 'val_loss'?" in notice


def test_infinite_values_are_results(steered: Steered) -> None:
    steered.queue.run_all(lambda _params: "inf")
    steered.step()
    assert steered.values()[0] == [math.inf]


def test_a_run_that_reaches_the_target_ends_the_sweep(tmp_path: Path) -> None:
    steered = Steered(make_sweep(tmp_path, metric={"name": "loss", "target": 0.1}))
    steered.queue.run_all()
    steered.step()
    first, second = steered.queue.jobs.values()
    report(first.folder, loss=0.2)
    steered.step()
    assert second.state is State.WAITING
    report(first.folder, loss=0.05)

    steered.step()

    [(job, reason)] = steered.queue.stopped
    assert job == 2
    assert reason == f"loss 0.05 of run {os.path.basename(first.folder)} reaches the target 0.1"
    assert steered.notices == [f"sweep s begins no more runs: {reason}"]
    assert not steered.over(), "what runs goes on"
    first.state = State.DONE
    steered.step()
    assert steered.over()
    steered.restart("second")
    assert steered.over()


def test_early_stopping_prunes_trials_with_their_last_value(tmp_path: Path) -> None:
    rule = {"type": "asha", "min_iter": 2, "eta": 2}
    steered = Steered(make_sweep(tmp_path, early_terminate=rule))
    for loss in (1.0, 9.0):
        steered.queue.run_all()
        steered.step()
        folder = max(steered.queue.live())
        for step in range(2):
            report(steered.queue.jobs[folder].folder, step=step, loss=loss)
    steered.step()

    [(job, reason)] = steered.queue.stopped
    assert job == 2
    assert reason == "loss 9 is worse than the best 1/2 of the runs at iteration 2 (1)"
    steered.step()
    trial = steered.study._study.get_trials()[1]
    assert (trial.state.name, trial.intermediate_values) == ("PRUNED", {2: 9.0})


@pytest.mark.parametrize(
    ("impute", "own", "value"),
    [
        ("worst", [], 7.0),
        ("worst", [8.0, 2.0], 8.0),
        ("best", [8.0, 2.0, 3.0], 2.0),
        ("latest", [8.0, 2.0, 3.0], 3.0),
        ("best", [], None),
        (None, [1.0], None),
    ],
)
def test_a_failed_run_has_the_value_that_the_sweep_imputes(
    tmp_path: Path, impute: str | None, own: list[float], value: float | None
) -> None:
    metric = {"name": "loss"} if impute is None else {"name": "loss", "impute": impute}
    steered = Steered(make_sweep(tmp_path, metric=metric))
    steered.queue.run_all(lambda _params: 7.0)
    steered.step()
    failed = steered.queue.jobs[2]
    for loss in own:
        report(failed.folder, loss=loss)
    failed.state = State.FAILED

    steered.step()

    assert steered.values()[1] == (None if value is None else [value])


def test_a_closed_sweep_begins_no_more_runs(steered: Steered) -> None:
    steered.queue.run_all()

    steered.restart(closed=True)

    assert len(steered.queue.jobs) == 1
    steered.queue.run_all(_square)
    steered.step()
    assert steered.over()


def test_a_grid_is_watched_without_a_study(tmp_path: Path) -> None:
    rule = {"type": "median", "min_runs": 1}
    sweep = make_sweep(
        tmp_path, {"x": [1, 2, 3]}, method="grid", samples=None, early_terminate=rule
    )
    queue = FakeQueue()
    for run in sweep:
        queue.add(run, run.id)
    queue.jobs[1].state = queue.jobs[2].state = State.RUNNING
    report(queue.jobs[1].folder, loss=1)
    report(queue.jobs[2].folder, loss=2)
    steered = Steered(sweep, queue)
    assert [job for job, _reason in queue.stopped] == [2]

    queue.jobs[1].state = State.DONE
    queue.jobs[3].state = State.RUNNING
    report(queue.jobs[3].folder, loss=3)
    steered.step()
    assert [job for job, _reason in queue.stopped] == [2, 3]
    assert not os.path.exists(os.path.join(sweep.root, "study.log"))
    steered.step()
    assert steered.over()


def test_a_study_that_cannot_be_read_is_made_again_from_the_runs(steered: Steered) -> None:
    for _run in range(4):
        steered.queue.run_all(_square)
        steered.step()
    steered.queue.run_all()
    path = steered.study.path
    with open(path, "r+b") as file:
        file.seek(300)
        file.write(b"\0\0\0")

    steered.restart()

    assert steered.notices == [
        f"{path} cannot be read: it is now {path}.unreadable.1, and is made again from the runs"
    ]
    values = sorted(value[0] for value in steered.values() if value is not None)
    done = [run for run in steered.queue.jobs.values() if run.state is State.DONE]
    assert values == sorted(_square(run.params) for run in done)
    while not steered.over():
        steered.queue.run_all(_square)
        steered.step()
    assert len(steered.queue.jobs) == 10
    assert steered.states() == ["COMPLETE"] * 10


def test_an_unfinished_line_of_a_full_disk_is_cut(steered: Steered) -> None:
    with open(steered.study.path, "ab") as file:
        file.write(b'{"op_code":4,"wor')

    steered.restart()

    assert steered.notices == []
    assert steered.states() == ["RUNNING"]


def test_a_lock_of_a_killed_process_is_no_obstacle(steered: Steered) -> None:
    os.symlink(steered.study.path, f"{steered.study.path}.lock")
    steered.restart()
    assert steered.states() == ["RUNNING"]


def test_a_second_controller_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    first = StudyLock(str(tmp_path), "s")

    with pytest.raises(
        ConflictError, match=rf"another process \({os.getpid()}\) steers sweep s in"
    ):
        StudyLock(str(tmp_path), "s", within_s=0.0)
    first.release()
    StudyLock(str(tmp_path), "s", within_s=0.0).release()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parameters": {"x": {"min": 0.0, "max": 2.0}}}, "with other parameters"),
        ({"command": "other {args}"}, "with another command"),
        ({"metric": {"name": "loss", "goal": "maximize"}}, "with another metric"),
        ({"exclude": ["x > 0.5"]}, "with other parameters"),
    ],
)
def test_the_study_of_another_sweep_is_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    Study(make_sweep(tmp_path))
    with pytest.raises(UsageError, match=f"{told}: give this sweep another name"):
        Study(make_sweep(tmp_path, **change))
    Study(make_sweep(tmp_path, samples=99, seed=3))


def test_a_study_that_stoker_did_not_make_is_refused(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path)
    os.makedirs(sweep.root)
    backend = JournalFileBackend(os.path.join(sweep.root, "study.log"))
    storage = optuna.storages.JournalStorage(backend)
    optuna.create_study(study_name="mine", storage=storage)
    with pytest.raises(UsageError, match=r"is the study of mine, not of sweep s: move it away"):
        Study(sweep)
    optuna.delete_study(study_name="mine", storage=storage)
    optuna.create_study(study_name="s", storage=storage).ask()
    with pytest.raises(UsageError, match="was not made by Stoker: move it away"):
        Study(sweep)


def test_excluded_points_are_not_run(tmp_path: Path) -> None:
    steered = Steered(make_sweep(tmp_path, exclude=["x > 0.5"], samples=8))
    while not steered.over():
        steered.queue.run_all(_square)
        steered.step()

    assert len(steered.queue.jobs) == 8
    assert all(run.params["x"] <= 0.5 for run in steered.queue.jobs.values())


def test_excludes_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the excludes left none of 200 points"):
        Steered(make_sweep(tmp_path, exclude=["x >= 0"]))


def test_the_same_study_asks_for_the_same_point(tmp_path: Path) -> None:
    points = []
    for name in ("a", "b"):
        steered = Steered(make_sweep(tmp_path / name, seed=5))
        for _run in range(13):
            steered.queue.run_all(_square)
            steered.step()
        points.append([run.params for run in steered.queue.jobs.values()])
    assert points[0] == points[1]
    other = Steered(make_sweep(tmp_path / "c", seed=6))
    assert other.queue.jobs[1].params != points[0][0]


def test_a_missing_optuna_is_named_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_optuna()
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"needs Optuna: pip install 'stoker\[tune\]'"):
        check_optuna()
