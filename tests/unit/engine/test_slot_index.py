"""What is counted as places change is what would be found by looking at all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.engine.queue import QueueEntry
from stoker.engine.slots import RunningAttempt, SlotState, SlotTable

steady = settings(deadline=None, derandomize=True, max_examples=100)
words = st.none() | st.just("so")
changes: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.sampled_from(["held", "asked", "releasing"]), st.booleans()),
    st.tuples(st.sampled_from(["closed", "away", "drained"]), words),
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
    """Two nodes with two slots each, of which two share a GPU, and a seat."""
    nodes = ("h1", "h1", "h2", "h2")
    keys = ("h1/a", "h1/a", "h2/a", "h2/b")
    slot_table = SlotTable(tuple(Slot(n, ("0",), (keys[n],), nodes[n]) for n in range(4)))
    slot_table.add(Slot(4, ("1",), ("h2/b",), "h2"), whole_slot=3)
    return slot_table


def indices(places: list[SlotState]) -> list[int]:
    return [place.slot.index for place in places]


@steady
@given(st.lists(st.tuples(st.integers(0, 4), changes), max_size=40))
def test_what_was_counted_is_what_is_there(story: list[tuple[int, tuple[str, Any]]]) -> None:
    slot_table = make_slot_table()
    for number, (index, (name, value)) in enumerate(story):
        place = slot_table.states[index]
        if name == "come":
            slot_table.occupy(running(number, place.slot))
        elif name == "go":
            if place.current is not None:
                slot_table.vacate(place.current)
        else:
            setattr(place, name, value)
        check(slot_table)


def check(slot_table: SlotTable) -> None:
    standing, places = slot_table.index, slot_table.states
    whole = [place for place in places if place.whole_slot is None]
    idle = [p for p in places if p.held and p.current is None and not p.releasing]
    open_ones = [place for place in whole if place.is_open]
    by_node = {name: sum(p.slot.node == name for p in open_ones) for name in ("h1", "h2")}

    assert standing.free() == indices([place for place in places if place.is_free])
    assert indices(standing.unheld()) == indices([p for p in whole if not (p.held or p.asked)])
    assert indices(standing.idle()) == indices(idle)
    assert indices(standing.shut()) == indices([place for place in idle if not place.is_open])
    assert indices(standing.followed()) == indices([p for p in places if p.followers])
    takers = [place for place in places if place.takes_ahead]
    assert slot_table.slots_taking_ahead() == takers
    assert sum(slot_table.room_ahead(takers).values()) == sum(place.ahead for place in takers)
    assert slot_table.count_open() == len(open_ones)
    for slots in range(4):
        assert slot_table.can_have(slots) == (slots <= max(by_node.values()))
        assert slot_table.can_have(slots, {2, 3}) == (slots <= by_node["h2"])
    for place in places:
        if not (place.held or place.asked):
            others = {k for p in places if p.held or p.asked for k in p.slot.keys}
            assert slot_table.unused_keys(place) == sorted(set(place.slot.keys) - others)
