"""The index of slots always agrees with a scan of all slots."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy, LeaseHeld, LeaseRequested, SlotState, Unleased
from stoker.engine.slots import SlotTable

steady = settings(deadline=None, derandomize=True, max_examples=100)
reasons = st.none() | st.just("so")
leases = st.sampled_from([Unleased(), LeaseRequested(), LeaseHeld()])
changes: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("releasing"), st.booleans()),
    st.tuples(st.just("lease"), leases),
    st.tuples(st.just("close"), st.tuples(st.sampled_from(ClosedBy), reasons)),
    st.tuples(st.sampled_from(["ahead", "tenants"]), st.integers(0, 2)),
    st.tuples(st.just("come"), st.none()),
    st.tuples(st.just("go"), st.none()),
)


def running(number: int, slot: Slot) -> RunningAttempt:
    attempt = Attempt(number, 1)
    return RunningAttempt(
        key=attempt.key, attempt=attempt, entry=QueueEntry(b"", Request()), slots=(slot,)
    )


def make_slot_table() -> SlotTable:
    """Two nodes with two slots each, of which two share a GPU, and a shared slot."""
    nodes = ("h1", "h1", "h2", "h2")
    keys = ("h1/a", "h1/a", "h2/a", "h2/b")
    slot_table = SlotTable(tuple(Slot(n, ("0",), (keys[n],), nodes[n]) for n in range(4)))
    slot_table.add(Slot(4, ("1",), ("h2/b",), "h2"), whole_slot=3)
    return slot_table


def indices(states: list[SlotState]) -> list[int]:
    return [state.slot.index for state in states]


@steady
@given(st.lists(st.tuples(st.integers(0, 4), changes), max_size=40))
def test_the_index_agrees_with_a_scan_after_every_change(
    steps: list[tuple[int, tuple[str, Any]]],
) -> None:
    slot_table = make_slot_table()
    for number, (index, (name, value)) in enumerate(steps):
        state = slot_table.states[index]
        if name == "come":
            slot_table.occupy(running(number, state.slot))
        elif name == "go":
            if state.current is not None:
                slot_table.vacate(state.current)
        elif name == "close":
            state.close(*value)
        else:
            setattr(state, name, value)
        check(slot_table)


def check(slot_table: SlotTable) -> None:
    index, states = slot_table.index, slot_table.states
    whole = [state for state in states if state.whole_slot is None]
    idle = [p for p in states if p.is_held and p.current is None and not p.releasing]
    open_ones = [state for state in whole if state.closed.keys() <= {ClosedBy.TURN}]
    by_node = {name: sum(p.slot.node == name for p in open_ones) for name in ("h1", "h2")}

    assert index.free() == indices([state for state in states if state.is_free])
    assert indices(index.unleased()) == indices([p for p in whole if isinstance(p.lease, Unleased)])
    assert indices(index.idle()) == indices(idle)
    assert indices(index.idle_closed()) == indices([state for state in idle if not state.is_open])
    takers = [state for state in states if state.takes_ahead]
    assert slot_table.slots_taking_ahead() == takers
    assert sum(slot_table.room_ahead(takers).values()) == sum(state.ahead for state in takers)
    assert slot_table.count_open() == len(open_ones)
    for slots in range(4):
        assert slot_table.can_have(slots) == (slots <= max(by_node.values()))
        assert slot_table.can_have(slots, {2, 3}) == (slots <= by_node["h2"])
    for state in states:
        if isinstance(state.lease, Unleased):
            others = {k for p in states if not isinstance(p.lease, Unleased) for k in p.slot.keys}
            assert slot_table.unused_keys(state) == sorted(set(state.slot.keys) - others)
