"""What is kept of what nodes tell."""

from __future__ import annotations

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse, JobUse, Look
from stoker.engine.board import Board, Running
from stoker.engine.queue import Entry
from stoker.engine.vista import Vista
from stoker.executors.node import Sight


def test_nothing_is_kept_of_an_attempt_that_a_node_still_names_when_it_has_ended() -> None:
    slot = Slot(0, ("0",), ("h1/GPU-0",), "h1")
    board = Board((slot,))
    vista = Vista(board)
    use = JobUse(key="7.1", mem_bytes={"GPU-0": 5}, so_far=AttemptUse())
    sight = Sight(Look(0.0, {}, {"7.1": use}), {})
    running = Running(
        key="7.1", attempt=Attempt.from_key("7.1"), entry=Entry(b"", Request()), slots=(slot,)
    )
    board.seat(running)
    vista.see("h1", sight)
    assert len(vista.histories()["7.1"]) == 1

    vista.on_end(running)
    board.leave(running)
    vista.see("h1", sight)
    assert vista.histories() == {}
    assert len(vista.history_of("7.1")) == 1
