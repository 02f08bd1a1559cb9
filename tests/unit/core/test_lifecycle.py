from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.lifecycle import (
    MEANING,
    TABLE,
    Event,
    IllegalEventError,
    State,
    after,
    is_final,
    is_live,
    is_pending,
)

# The diagram once more, written down by hand: the table must say the same.
WAYS = {
    (State.WAITING, Event.CLAIM): State.STARTING,
    (State.STARTING, Event.REVOKE): State.WAITING,
    (State.WAITING, Event.REVIVE): State.STARTING,
    (State.STARTING, Event.START): State.RUNNING,
    (State.STARTING, Event.SUCCEED): State.DONE,
    (State.STARTING, Event.FAIL): State.FAILED,
    (State.STARTING, Event.KILL): State.KILLED,
    (State.STARTING, Event.LOSE): State.LOST,
    (State.STARTING, Event.PREEMPT): State.PREEMPTED,
    (State.RUNNING, Event.SUCCEED): State.DONE,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.KILL): State.KILLED,
    (State.RUNNING, Event.LOSE): State.LOST,
    (State.RUNNING, Event.PREEMPT): State.PREEMPTED,
    (State.PAUSED, Event.SUCCEED): State.DONE,
    (State.PAUSED, Event.FAIL): State.FAILED,
    (State.PAUSED, Event.KILL): State.KILLED,
    (State.PAUSED, Event.LOSE): State.LOST,
    (State.PAUSED, Event.PREEMPT): State.PREEMPTED,
    (State.FAILED, Event.RETRY): State.WAITING,
    (State.KILLED, Event.RETRY): State.WAITING,
    (State.LOST, Event.RETRY): State.WAITING,
    (State.SKIPPED, Event.RETRY): State.WAITING,
    (State.PREEMPTED, Event.RETRY): State.WAITING,
    (State.DONE, Event.RERUN): State.WAITING,
    (State.WAITING, Event.CANCEL): State.KILLED,
    (State.HELD, Event.CANCEL): State.KILLED,
    (State.BLOCKED, Event.CANCEL): State.KILLED,
    (State.DELAYED, Event.CANCEL): State.KILLED,
    (State.WAITING, Event.HOLD): State.HELD,
    (State.WAITING, Event.BLOCK): State.BLOCKED,
    (State.WAITING, Event.DELAY): State.DELAYED,
    (State.HELD, Event.READY): State.WAITING,
    (State.HELD, Event.BLOCK): State.BLOCKED,
    (State.HELD, Event.DELAY): State.DELAYED,
    (State.BLOCKED, Event.READY): State.WAITING,
    (State.BLOCKED, Event.HOLD): State.HELD,
    (State.BLOCKED, Event.DELAY): State.DELAYED,
    (State.DELAYED, Event.READY): State.WAITING,
    (State.DELAYED, Event.HOLD): State.HELD,
    (State.DELAYED, Event.BLOCK): State.BLOCKED,
    (State.BLOCKED, Event.SKIP): State.SKIPPED,
    (State.RUNNING, Event.PAUSE): State.PAUSED,
    (State.PAUSED, Event.RESUME): State.RUNNING,
    (State.RUNNING, Event.SUSPEND): State.SUSPENDED,
    (State.SUSPENDED, Event.RESTORE): State.RUNNING,
    (State.SUSPENDED, Event.SUCCEED): State.DONE,
    (State.SUSPENDED, Event.FAIL): State.FAILED,
    (State.SUSPENDED, Event.KILL): State.KILLED,
    (State.SUSPENDED, Event.LOSE): State.LOST,
    (State.SUSPENDED, Event.PREEMPT): State.PREEMPTED,
    (State.STARTING, Event.PRUNE): State.PRUNED,
    (State.RUNNING, Event.PRUNE): State.PRUNED,
    (State.PAUSED, Event.PRUNE): State.PRUNED,
    (State.SUSPENDED, Event.PRUNE): State.PRUNED,
    (State.WAITING, Event.DISCARD): State.PRUNED,
    (State.HELD, Event.DISCARD): State.PRUNED,
    (State.BLOCKED, Event.DISCARD): State.PRUNED,
    (State.DELAYED, Event.DISCARD): State.PRUNED,
    (State.PRUNED, Event.RETRY): State.WAITING,
}


@pytest.mark.parametrize(("state", "event"), WAYS)
def test_each_way_of_the_diagram_is_open(state: State, event: Event) -> None:
    assert after(state, event) is WAYS[state, event]


@pytest.mark.parametrize(
    ("state", "event"),
    [way for way in itertools.product(State, Event) if way not in WAYS],
)
def test_every_other_way_is_closed_and_the_error_names_it(state: State, event: Event) -> None:
    with pytest.raises(
        IllegalEventError, match=f"{event.value} is not allowed for a {state.value} job"
    ):
        after(state, event)


def test_every_event_is_in_the_table() -> None:
    assert set(TABLE) == set(Event)


@pytest.mark.parametrize("state", State)
def test_a_job_waits_or_lives_or_is_over_and_never_two_of_them(state: State) -> None:
    resting = is_pending(state) + is_live(state) + is_final(state)
    assert resting == (state is not State.PREEMPTED)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_meaning_for_people(state: State) -> None:
    assert MEANING[state]


def test_a_success_is_undone_only_by_hand() -> None:
    assert [event for event in Event if (State.DONE, event) in WAYS] == [Event.RERUN]


@given(st.lists(st.sampled_from(Event)))
def test_any_sequence_of_events_is_legal_or_refused(events: list[Event]) -> None:
    state = State.WAITING
    for event in events:
        before = state
        try:
            state = after(state, event)
        except IllegalEventError:
            assert (before, event) not in WAYS
            assert state is before
