from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_job_begins_at_its_time_also_when_the_daemon_was_killed_meanwhile(queue: Queue) -> None:
    begun = time.time()
    soon = queue.add("--begin", "+4s", "date +%s.%N > began")
    late = queue.add("--begin", "+1h", "touch never")
    assert queue.show(late)["state"] == "delayed"
    assert "is delayed until" in queue.ok("why", str(late))
    queue.kill_daemon()
    assert queue.show(late)["state"] == "delayed"
    queue.ok("wait", str(soon))

    assert float(queue.stoker.read("began")[0]) - begun >= 4
    assert queue.show(late)["state"] == "delayed"


def test_a_retry_waits_longer_with_each_try(queue: Queue) -> None:
    queue.add("--retries", "2", "--backoff", "1s", "date +%s.%N >> tries; exit 1")
    queue("wait")

    first, second, third = (float(line) for line in queue.stoker.read("tries"))
    assert second - first >= 1
    assert third - second >= 2


def test_the_past_and_nonsense_are_refused(queue: Queue) -> None:
    for when, complaint in (("2001-01-01", "lies in the past"), ("soon", "is not a time")):
        ended = queue("add", "--begin", when, "true")
        assert ended.code == 2
        assert complaint in ended.err
    assert queue.ls() == {}


def test_all_with_a_reason_are_tried_again(queue: Queue) -> None:
    queue.add("exit 3")
    queue.add("exit 4")
    queue.add("true")
    queue("wait")

    assert queue.ok("retry", "--failed", "exit 4") == "queued again job 2\n"
    queue("wait")
    assert queue.ok("retry", "--failed") == "queued again 2 jobs: 1-2\n"
    queue("wait")
    assert queue.ok("retry", "--failed", "no such reason") == "nothing to retry\n"
    assert queue("retry", "--failed", "exit 4", "--all").code == 2
