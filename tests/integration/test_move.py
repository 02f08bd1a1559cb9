from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_jobs_run_in_the_order_they_were_moved_to(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    for number in range(1, 6):
        queue.add("-g", "2", f"echo {number} >> order")

    assert queue.ok("move", "5") == "job 5 is at position 1\n"
    assert queue.ok("move", "1", "3") == "job 1 is at position 3\n"
    assert list(queue.ls()) == [5, 2, 1, 3, 4]
    queue.ok("resume", "--queue")
    queue.ok("wait")

    assert queue.stoker.read("order") == ["5", "2", "1", "3", "4"]


def test_a_move_past_another_priority_takes_it_over_and_says_so(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    queue.add("-p", "5", "true")
    queue.add("true")

    ended = queue("move", "2")

    assert ended.out == "job 2 is at position 1\n"
    assert ended.err == "stoker: job 2 has priority 5 now instead of 0, as its neighbours there\n"


def test_wrong_words_are_one_clear_line(queue: Queue) -> None:
    queue.add("--hold", "true")

    assert queue("move", "1").err == (
        "stoker: job 1 is held: only what waits has a position in the queue\n"
    )
    assert queue("move", "7").code == 1
    assert queue("move", "1", "0").code == 2
    assert queue("move", "1", "first").code == 2
