from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_started_job_is_next_despite_holds_needs_and_pauses(queue: Queue) -> None:
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.02; done")
    queue.until_running(1)
    queue.add("-g", "2", "-p", "9", "echo urgent >> order")
    queue.add("-g", "2", "--hold", "--begin", "+1h", "echo chosen >> order")
    queue.ok("pause", "--queue")

    assert queue.ok("start", "3") == "next to start: job 3\n"
    assert "it is the next to start" in queue.ok("why", "3")
    (queue.work / "go").touch()
    queue.ok("wait", "3")
    assert queue.show(2)["state"] == "waiting"
    queue.ok("resume", "--queue")
    queue.ok("wait")

    assert queue.stoker.read("order") == ["chosen", "urgent"]


def test_start_refuses_a_job_that_has_begun(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait")

    ended = queue("start", "1")

    assert (ended.code, ended.err) == (
        1,
        "stoker: job 1 is done: only what has not begun can be started\n",
    )
