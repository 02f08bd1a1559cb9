from __future__ import annotations

import pytest

from stoker.core.slot import Slot
from stoker.executors.slot_numbering import SlotNumbering
from stoker.supervisor.messages import DefineSlot

SLOTS = [Slot(0, ("0", "1"), ("a", "b")), Slot(1, ("1", "2"), ("b", "c")), Slot(2, ("0",), ("a",))]


@pytest.fixture
def slot_numbering() -> SlotNumbering:
    slot_numbering = SlotNumbering()
    for slot in SLOTS:
        slot_numbering.enter(slot)
    return slot_numbering


def test_the_place_of_a_slot_has_its_number(slot_numbering: SlotNumbering) -> None:
    assert slot_numbering.place((1,)) == (1, [])
    place = DefineSlot(1, {"CUDA_VISIBLE_DEVICES": "1,2"}, ("b", "c"))
    assert SlotNumbering().enter(SLOTS[1]) == place


def test_a_place_of_several_slots_names_each_gpu_once_in_order(
    slot_numbering: SlotNumbering,
) -> None:
    number, orders = slot_numbering.place((1, 0, 2))

    env = {"CUDA_VISIBLE_DEVICES": "1,2,0"}
    assert orders == [DefineSlot(number, env, ["b", "c", "a"], (1, 0, 2))]


def test_a_place_is_defined_once(slot_numbering: SlotNumbering) -> None:
    number, orders = slot_numbering.place((0, 1))
    assert len(orders) == 1
    assert slot_numbering.place((0, 1)) == (number, [])
    other, _ = slot_numbering.place((1, 0))

    assert len({number, other, 0, 1, 2}) == 5


def test_a_place_of_no_slot_has_no_gpu(slot_numbering: SlotNumbering) -> None:
    number, orders = slot_numbering.place(())

    assert orders == [DefineSlot(number, {"CUDA_VISIBLE_DEVICES": ""}, [], ())]


def test_starting_over_defines_the_slots_again_and_composites_when_needed(
    slot_numbering: SlotNumbering,
) -> None:
    slot_numbering.place((0, 1))
    assert [place.number for place in slot_numbering.start_over()] == [0, 1, 2]

    assert len(slot_numbering.place((0, 1))[1]) == 1


@pytest.mark.parametrize("slots", [(7,), (0, 7)])
def test_an_unknown_slot_is_an_error_before_anything_is_sent(
    slot_numbering: SlotNumbering, slots: tuple[int, ...]
) -> None:
    with pytest.raises(KeyError):
        slot_numbering.place(slots)
    with pytest.raises(KeyError):
        slot_numbering.place(slots)
