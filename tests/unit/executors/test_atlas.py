from __future__ import annotations

import pytest

from stoker.core.slot import Slot
from stoker.executors.atlas import Atlas

SLOTS = [Slot(0, ("0", "1"), ("a", "b")), Slot(1, ("1", "2"), ("b", "c")), Slot(2, ("0",), ("a",))]


@pytest.fixture
def atlas() -> Atlas:
    atlas = Atlas()
    for slot in SLOTS:
        atlas.enter(slot)
    return atlas


def test_a_slots_place_has_its_number(atlas: Atlas) -> None:
    assert atlas.place((1,)) == (1, [])
    assert Atlas().enter(SLOTS[1]) == ["place", 1, {"CUDA_VISIBLE_DEVICES": "1,2"}, ("b", "c")]


def test_a_place_of_several_slots_names_each_gpu_once_in_order(atlas: Atlas) -> None:
    number, messages = atlas.place((1, 0, 2))

    env = {"CUDA_VISIBLE_DEVICES": "1,2,0"}
    assert messages == [["place", number, env, ["b", "c", "a"], [1, 0, 2]]]


def test_a_place_is_defined_once(atlas: Atlas) -> None:
    number, messages = atlas.place((0, 1))
    assert len(messages) == 1
    assert atlas.place((0, 1)) == (number, [])
    other, _ = atlas.place((1, 0))

    assert len({number, other, 0, 1, 2}) == 5


def test_a_place_of_no_slot_has_no_gpu(atlas: Atlas) -> None:
    number, messages = atlas.place(())

    assert messages == [["place", number, {"CUDA_VISIBLE_DEVICES": ""}, [], []]]


def test_starting_over_tells_the_slots_again_and_composites_when_needed(atlas: Atlas) -> None:
    atlas.place((0, 1))
    assert [message[:2] for message in atlas.start_over()] == [
        ["place", 0],
        ["place", 1],
        ["place", 2],
    ]

    assert len(atlas.place((0, 1))[1]) == 1


@pytest.mark.parametrize("slots", [(7,), (0, 7)])
def test_an_unknown_slot_is_an_error_before_anything_is_sent(
    atlas: Atlas, slots: tuple[int, ...]
) -> None:
    with pytest.raises(KeyError):
        atlas.place(slots)
    with pytest.raises(KeyError):
        atlas.place(slots)
