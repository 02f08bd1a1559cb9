from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_every_end_is_told_and_every_failure_again(queue: Queue) -> None:
    line = 'echo "$STOKER_JOB_ID $STOKER_NAME $STOKER_STATE $STOKER_REASON" >> {}'
    queue.ok("config", "on-finish", line.format(queue.work / "finish"))
    queue.ok("config", "on-fail", line.format(queue.work / "fail"))
    queue.add("-N", "good", "true")
    queue.add("-N", "bad", "--retries", "1", "exit 4")
    queue("wait")

    queue.until(lambda: len(queue.stoker.read("finish")) == 2)
    assert sorted(queue.stoker.read("finish")) == ["1 good done ", "2 bad failed exit 4"]
    assert queue.stoker.read("fail") == ["2 bad failed exit 4"]


def test_one_that_fails_is_told_and_the_queue_goes_on(queue: Queue) -> None:
    queue.ok("config", "on-finish", "echo broken >&2; exit 9")
    for _ in range(3):
        queue.add("true")
    queue.ok("wait")

    queue.until(lambda: "on-finish failed with exit 9: broken" in queue.ok("status"))
    assert queue.ok("status").count("on-finish") == 1


def test_one_that_hangs_holds_up_nobody(queue: Queue) -> None:
    queue.ok("config", "on-finish", "sleep 1000")
    for _ in range(8):
        queue.add("-g", "0", "true")

    assert queue("wait").code == 0


def test_notifications_need_apprise_and_say_so(queue: Queue) -> None:
    queue.ok("config", "notify", "json://localhost:9/x")
    assert queue.ok("config", "notify") == "(set)\n"
    queue.add("true")
    queue.ok("wait")

    queue.until(lambda: "notify failed with exit 1" in queue.ok("status"))
