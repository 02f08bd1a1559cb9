"""`stoker config order`, as a user types it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_short_jobs_start_first_and_fifo_goes_back(queue: Queue) -> None:
    queue.ok("config", "order", "shortest")
    for work in ("sleep 6", "true"):  # both kinds are known from here on
        queue.add("-g", "2", f"sh -c '{work}; echo {work.split()[0]} >> order'")
    queue.ok("wait")
    queue.ok("pause", "--queue")
    queue.add("-g", "2", "sh -c 'sleep 6; echo sleep >> order'")
    queue.add("-g", "2", "sh -c 'true; echo true >> order'")

    assert list(queue.ls("-s", "waiting")) == [4, 3]
    queue.ok("config", "order", "fifo")
    assert list(queue.ls("-s", "waiting")) == [3, 4]
    queue.ok("config", "order", "shortest")
    assert list(queue.ls("-s", "waiting")) == [4, 3]
    queue.ok("resume", "--queue")
    queue.ok("wait")

    assert queue.stoker.read("order") == ["sleep", "true", "true", "sleep"]


def test_a_wrong_order_is_one_clear_line(queue: Queue) -> None:
    ended = queue("config", "order", "longest")

    assert ended.code == 2
    assert ended.err == "stoker: order cannot be 'longest': fifo or shortest\n"
