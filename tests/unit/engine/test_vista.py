"""What is kept of what nodes tell."""

from __future__ import annotations

import pytest

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.core.usage import AttemptUse, JobUse, Look
from stoker.engine.board import Board, Running
from stoker.engine.queue import Entry
from stoker.engine.vista import Vista
from stoker.executors.node import Sight
from stoker.gpus.release import PATIENCE_S


def seated(board: Board, slot: Slot) -> Running:
    running = Running(
        key="7.1", attempt=Attempt.from_key("7.1"), entry=Entry(b"", Request()), slots=(slot,)
    )
    board.seat(running)
    return running


def test_memory_is_awaited_no_longer_from_a_node_whose_driver_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    slot = Slot(0, ("0",), ("h1/GPU-0",), "h1")
    board = Board((slot,))
    vista = Vista(board)
    told: list[str] = []
    vista.on_notice = told.append
    running = seated(board, slot)
    use = JobUse(key="7.1", mem_bytes={"GPU-0": 5}, so_far=AttemptUse())
    vista.see("h1", Sight(Look(0.0, {}, {"7.1": use}), {}))
    vista.on_end(running)
    board.leave(running)

    now += PATIENCE_S - 1
    vista.see("h1", None)
    assert [place.releasing for place in board.places] == [True]
    assert told == []
    now += 1
    vista.see("h1", None)
    assert [place.releasing for place in board.places] == [False]
    assert told == [
        "GPU h1/0: nobody sees whether the memory of the job before has come back; going on without it"
    ]


def test_nothing_is_kept_of_an_attempt_that_a_node_still_names_when_it_has_ended() -> None:
    slot = Slot(0, ("0",), ("h1/GPU-0",), "h1")
    board = Board((slot,))
    vista = Vista(board)
    use = JobUse(key="7.1", mem_bytes={"GPU-0": 5}, so_far=AttemptUse())
    sight = Sight(Look(0.0, {}, {"7.1": use}), {})
    running = seated(board, slot)
    vista.see("h1", sight)
    assert len(vista.histories()["7.1"]) == 1

    vista.on_end(running)
    board.leave(running)
    vista.see("h1", sight)
    assert vista.histories() == {}
    assert len(vista.history_of("7.1")) == 1
