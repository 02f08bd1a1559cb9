"""Runs that are worse than others can be suspended instead of ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.core.lifecycle import State
from stoker.errors import UsageError
from stoker.tuning.watch import mark_parked
from unit.tuning.made import FakeQueue, Steered, make_sweep, report

RULE = {"type": "median", "min_runs": 1, "park": True}


def grid(tmp_path: Path) -> Steered:
    """A grid of which the first run is good, the second runs and the third waits."""
    sweep = make_sweep(
        tmp_path, {"x": [1, 2, 3]}, method="grid", samples=None, early_terminate=RULE
    )
    queue = FakeQueue()
    for run in sweep:
        queue.add(run, run.id)
    queue.jobs[1].state = queue.jobs[2].state = State.RUNNING
    report(queue.jobs[1].folder, loss=1)
    return Steered(sweep, queue)


def test_a_loser_is_parked_and_the_sweep_ends_without_it(tmp_path: Path) -> None:
    steered = grid(tmp_path)
    loser = steered.queue.jobs[2]
    report(loser.folder, loss=2)

    steered.step()

    assert (loser.state, steered.queue.stopped) == (State.SUSPENDED, [])
    parked = Path(loser.folder, ".parked").read_text()
    assert parked == "loss 2 is worse than the median of the runs at iteration 1 (1)\n"
    for job in (1, 3):
        steered.queue.jobs[job].state = State.DONE
    steered.step()
    assert steered.over()
    assert loser.state is State.SUSPENDED


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_parked_run_that_the_user_resumes_is_left_alone(
    tmp_path: Path, *, is_killed: bool
) -> None:
    steered = grid(tmp_path)
    loser = steered.queue.jobs[2]
    report(loser.folder, loss=2)
    steered.step()
    loser.state = State.RUNNING
    if is_killed:
        steered.restart(resumed=True)
    report(loser.folder, loss=3)

    steered.step()

    assert (loser.state, steered.queue.stopped) == (State.RUNNING, [])
    for job in steered.queue.jobs.values():
        assert not steered.over()
        job.state = State.DONE
        steered.step()
    assert steered.over()


def test_a_run_that_cannot_be_parked_is_ended_and_one_line_says_so(tmp_path: Path) -> None:
    steered = grid(tmp_path)
    steered.queue.refusal = "job 2 uses no GPU"
    for job in (2, 3):
        steered.queue.jobs[job].state = State.RUNNING
        report(steered.queue.jobs[job].folder, loss=5)

    steered.step()

    assert [job for job, _reason in steered.queue.stopped] == [2, 3]
    assert steered.notices == ["sweep s: a run is ended and not parked: job 2 uses no GPU"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_parked_trial_is_pruned_once_whatever_becomes_of_its_run(
    tmp_path: Path, *, is_killed: bool
) -> None:
    steered = Steered(make_sweep(tmp_path, early_terminate=RULE, samples=3))
    steered.queue.run_all()
    steered.step()
    steered.queue.run_all()
    report(steered.queue.jobs[1].folder, loss=1)
    report(steered.queue.jobs[2].folder, loss=2)
    steered.step()
    assert steered.states()[:2] == ["RUNNING", "PRUNED"]
    if is_killed:
        steered.restart(resumed=True)
    steered.queue.jobs[2].state = State.RUNNING
    steered.step()

    while not steered.over():
        steered.queue.run_all(lambda _params: 1.0)
        steered.step()

    assert steered.states() == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert len(steered.queue.jobs) == 3


def test_a_controller_that_was_killed_after_a_run_was_parked_prunes_its_trial(
    tmp_path: Path,
) -> None:
    steered = Steered(make_sweep(tmp_path, early_terminate=RULE, samples=2))
    steered.queue.run_all()
    steered.step()
    run = steered.queue.jobs[1]
    report(run.folder, loss=2)
    assert steered.queue.park(1, run.folder, "worse") is None

    steered.restart(resumed=True)

    assert steered.states() == ["PRUNED", "RUNNING"]


@pytest.mark.parametrize(
    ("then", "outcome"),
    [(State.DONE, "COMPLETE"), (State.FAILED, "FAIL"), (State.SUSPENDED, "PRUNED")],
)
def test_a_controller_that_was_killed_between_the_mark_and_the_suspension_ends_the_trial(
    tmp_path: Path, then: State, outcome: str
) -> None:
    steered = Steered(make_sweep(tmp_path, early_terminate=RULE, samples=1))
    steered.queue.run_all()
    run = steered.queue.jobs[1]
    report(run.folder, loss=2)
    mark_parked(run.folder, "worse")

    steered.restart(resumed=True)
    assert steered.states() == ["RUNNING"]
    run.state = then
    steered.step()

    assert steered.states() == [outcome]
    assert steered.over()


def test_park_is_true_or_false(tmp_path: Path) -> None:
    rule: dict[str, Any] = {**RULE, "park": "yes"}
    with pytest.raises(UsageError, match="park is 'yes': write true or false"):
        make_sweep(tmp_path, early_terminate=rule)
