from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_released_jobs_start_in_their_order(queue: Queue) -> None:
    for number in (1, 2, 3):
        queue.add("--hold", "-g", "2", f"echo {number} >> order")

    assert queue.ok("release", "--all") == "released 3 jobs: 1-3\n"
    queue.ok("wait")

    assert queue.stoker.read("order") == ["1", "2", "3"]


def test_release_refuses_a_job_that_is_not_held(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait")

    ended = queue("release", "1")

    assert (ended.code, ended.err) == (1, "stoker: job 1 is done, not held\n")
    assert queue.ok("release", "--all") == "nothing is held\n"
