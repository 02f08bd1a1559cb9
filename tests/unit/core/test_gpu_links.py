from __future__ import annotations

import pytest

from stoker.core.gpu_links import Link, SlotLinks
from stoker.core.slot import Slot
from unit.core.link_matrices import MATRICES, make_links


def test_machines_whose_gpus_are_all_joined_alike_have_nothing_to_choose() -> None:
    assert make_links("equal", 8).are_equal
    assert make_links("nvswitch", 8).are_equal
    assert not make_links("pairs", 8).are_equal
    assert not make_links("pcie-2x4", 8).are_equal


@pytest.mark.parametrize(
    ("matrix", "open_slots", "wanted", "chosen"),
    [
        ("pairs", [0, 1, 2, 3], 2, (0, 1)),
        ("pairs", [0, 2, 3], 2, (2, 3)),
        ("pairs", [1, 2, 4, 6, 7], 2, (6, 7)),
        ("pairs", [0, 2, 4, 6], 2, (0, 2)),  # no pair is whole: one processor
        ("pairs", [1, 2, 3, 4, 5, 6, 7], 4, (4, 5, 6, 7)),
        ("pcie-2x4", [1, 2, 3, 4, 5, 6, 7], 3, (1, 2, 3)),  # and the whole switch stays whole
        ("pcie-2x4", [0, 4, 5], 2, (4, 5)),
        ("pcie-2x4", [3, 4], 2, (3, 4)),  # no better one is waited for
    ],
)
def test_several_slots_are_those_with_the_best_links(
    matrix: str, open_slots: list[int], wanted: int, chosen: tuple[int, ...]
) -> None:
    assert make_links(matrix, 8).choose(open_slots, wanted) == chosen


@pytest.mark.parametrize(
    ("matrix", "open_slots", "chosen"),
    [
        ("pairs", [0, 1, 2, 3], 0),
        ("pairs", [0, 1, 3], 3),  # its partner is in use already
        ("pairs", [0, 1, 4, 5, 6], 6),
        ("pcie-2x4", [0, 1, 2, 3, 7], 7),
        ("pcie-2x4", [0, 1, 2, 6, 7], 6),
    ],
)
def test_one_slot_is_the_one_that_spoils_the_fewest_pairs(
    matrix: str, open_slots: list[int], chosen: int
) -> None:
    assert make_links(matrix, 8).choose(open_slots, 1) == (chosen,)


def test_sets_of_a_large_machine_grow_from_each_slot() -> None:
    links = make_links("pcie-2x4", 32)
    assert links.choose([*range(3, 32)], 4) == (4, 5, 6, 7)
    assert links.choose([0, 1, 2, *range(4, 30)], 8)[0] == 4


def test_a_group_of_gpus_is_joined_as_its_worst_pair() -> None:
    of = {frozenset((f"GPU-{a}", f"GPU-{b}")): link for (a, b), link in MATRICES["pairs"](4)}
    slots = [
        Slot(0, ("0", "2"), ("GPU-0", "GPU-2")),
        Slot(1, ("1",), ("GPU-1",)),
        Slot(2, ("3",), ("GPU-3",)),
    ]
    links = SlotLinks(slots, of)
    assert links.choose([0, 1, 2], 2) == (0, 1)
    assert Link.NVLINK > Link.SWITCH > Link.NODE > Link.OTHER


def test_slots_whose_links_are_unknown_are_left_out() -> None:
    of = {frozenset((f"GPU-{a}", f"GPU-{b}")): link for (a, b), link in MATRICES["pairs"](4)}
    links = SlotLinks([Slot(0, ("0",), ("GPU-0",)), Slot(1, ("x",), ("elsewhere",))], of)
    assert links.slots == {0}
