from __future__ import annotations

from stoker.core.node import NodeFacts
from stoker.core.slot import Slot
from stoker.engine.board import Board, label_of


def two_nodes() -> Board:
    board = Board(tuple(Slot(n, (str(n),), (f"GPU-{n}",), "h1") for n in range(2)))
    board.add(Slot(2, ("0",), ("h2/GPU-0",), "h2"))
    for place in board.places:
        place.held = True
    return board


def test_the_places_of_a_node_are_found_at_once() -> None:
    board = two_nodes()

    assert [place.slot.label for place in board.of_node["h1"]] == ["h1/0", "h1/1"]
    assert [place.slot.label for place in board.of_node["h2"]] == ["h2/0"]


def test_nothing_starts_on_a_node_that_is_away_until_it_is_back() -> None:
    board = two_nodes()

    board.note_node(NodeFacts("h2", away="its link is cut", since=5.0))

    assert board.free() == [0, 1]
    assert board.places[2].shut == "its link is cut"
    board.note_node(NodeFacts("h2"))
    assert board.free() == [0, 1, 2]


def test_a_slot_that_comes_to_a_node_that_is_away_is_shut_too() -> None:
    board = two_nodes()
    board.note_node(NodeFacts("h2", away="its link is cut"))

    board.add(Slot(3, ("1",), ("h2/GPU-1",), "h2"))

    assert not board.places[3].is_open


def test_what_was_worked_out_from_slots_nodes_and_models_is_known_to_be_out_of_date() -> None:
    board = two_nodes()
    shapes = [board.shape]
    for change in (
        lambda: board.note_node(NodeFacts("h2", {"disk": "fast"})),
        lambda: board.note_models({"GPU-0": "A100"}),
        lambda: board.add(Slot(3, ("1",), ("h2/GPU-1",), "h2")),
        lambda: board.forget_node("h2"),
    ):
        change()
        shapes.append(board.shape)

    assert shapes == sorted(set(shapes))
    board.note_models({"GPU-0": "A100"})
    assert board.shape == shapes[-1]


def test_a_job_without_gpu_is_where_its_node_is() -> None:
    assert label_of((), "h2") == "h2/"
    assert label_of(()) == ""
