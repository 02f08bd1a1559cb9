from __future__ import annotations

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.running_attempt import label_of
from stoker.engine.slot_state import LeaseHeld
from stoker.engine.slots import SlotTable


def two_nodes() -> SlotTable:
    slot_table = SlotTable(tuple(Slot(n, (str(n),), (f"GPU-{n}",), "h1") for n in range(2)))
    slot_table.add(Slot(2, ("0",), ("h2/GPU-0",), "h2"))
    for place in slot_table.states:
        place.lease = LeaseHeld()
    return slot_table


def test_the_slots_of_a_node_are_found_by_its_name() -> None:
    slot_table = two_nodes()

    assert [place.slot.label for place in slot_table.by_node["h1"]] == ["h1/0", "h1/1"]
    assert [place.slot.label for place in slot_table.by_node["h2"]] == ["h2/0"]


def test_nothing_starts_on_a_node_that_is_away_until_it_is_back() -> None:
    slot_table = two_nodes()

    slot_table.update_node(NodeFacts("h2", away="its link is cut", since=5.0))

    assert slot_table.free() == [0, 1]
    assert slot_table.states[2].fault == "its link is cut"
    slot_table.update_node(NodeFacts("h2"))
    assert slot_table.free() == [0, 1, 2]


def test_a_new_slot_of_a_node_that_is_away_is_closed() -> None:
    slot_table = two_nodes()
    slot_table.update_node(NodeFacts("h2", away="its link is cut"))

    slot_table.add(Slot(3, ("1",), ("h2/GPU-1",), "h2"))

    assert not slot_table.states[3].is_open


def test_changes_of_slots_nodes_and_models_raise_the_layout_version() -> None:
    slot_table = two_nodes()
    shapes = [slot_table.layout_version]
    for change in (
        lambda: slot_table.update_node(NodeFacts("h2", {"disk": "fast"})),
        lambda: slot_table.update_models({"GPU-0": "A100"}),
        lambda: slot_table.add(Slot(3, ("1",), ("h2/GPU-1",), "h2")),
        lambda: slot_table.forget_node("h2"),
    ):
        change()
        shapes.append(slot_table.layout_version)

    assert shapes == sorted(set(shapes))
    slot_table.update_models({"GPU-0": "A100"})
    assert slot_table.layout_version == shapes[-1]


def test_a_job_without_gpu_starts_on_the_node_that_fits() -> None:
    assert label_of((), "h2") == "h2/"
    assert label_of(()) == ""
