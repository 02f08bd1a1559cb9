from __future__ import annotations

import pytest

from stoker.core.invariants import InvariantError, check_plan, check_slots
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate, Plan, Start


def checked(*starts: Start, waiting: tuple[Candidate, ...], cpu_places: int = 0) -> None:
    plan = Plan(starts)
    check_plan(plan, waiting, free=[0, 1], rooms={2: 1}, cpu_places=cpu_places)


def test_live_jobs_on_slots_of_their_own_are_in_order() -> None:
    states = {1: State.RUNNING, 2: State.STARTING, 3: State.DONE, 4: State.WAITING}

    check_slots(states, {1: [0], 2: [1, 2], 3: [], 4: []}, range(4))


@pytest.mark.parametrize(
    "state", [state for state in State if state.value not in "starting running paused suspended"]
)
def test_a_job_that_does_not_live_holds_nothing(state: State) -> None:
    with pytest.raises(InvariantError, match=f"job 1 is {state.value} and still holds slots"):
        check_slots({1: state}, {1: [0]}, range(2))


def test_two_jobs_never_have_one_slot() -> None:
    states = {1: State.RUNNING, 2: State.RUNNING}

    with pytest.raises(InvariantError, match="slot 1 is held by job 1 and by job 2"):
        check_slots(states, {1: [0, 1], 2: [1]}, range(2))


def test_a_job_never_has_one_slot_twice() -> None:
    with pytest.raises(InvariantError, match="slot 0 is held by job 1 and by job 1"):
        check_slots({1: State.RUNNING}, {1: [0, 0]}, range(2))


def test_a_slot_that_does_not_exist_is_not_held() -> None:
    with pytest.raises(InvariantError, match="slot 7, which does not exist"):
        check_slots({1: State.RUNNING}, {1: [7]}, range(2))


def test_a_plan_that_keeps_to_the_rules_passes() -> None:
    waiting = (Candidate(id=1, slots=2), Candidate(id=2, slots=1), Candidate(id=3, slots=0))

    checked(
        Start(1, (0, 1)),
        Start(2, (2,), in_advance=True),
        Start(3, ()),
        waiting=waiting,
        cpu_places=1,
    )


@pytest.mark.parametrize(
    ("starts", "complaint"),
    [
        ([Start(9, (0,))], "is not waiting"),
        ([Start(1, (0,)), Start(1, (1,))], "planned twice"),
        ([Start(1, (0, 1))], "needs 1 slots and gets 2"),
        ([Start(1, (2,))], "not all of them free"),
        ([Start(1, (0,)), Start(2, (0,))], "not all of them free"),
        ([Start(1, (0,), in_advance=True)], "more jobs are claimed in advance"),
        (
            [Start(1, (2,), in_advance=True), Start(2, (2,), in_advance=True)],
            "more jobs are claimed in advance",
        ),
        ([Start(3, ())], "more jobs without GPU"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_caught(starts: list[Start], complaint: str) -> None:
    with pytest.raises(InvariantError, match=complaint):
        checked(*starts, waiting=(Candidate(id=1), Candidate(id=2), Candidate(id=3, slots=0)))
