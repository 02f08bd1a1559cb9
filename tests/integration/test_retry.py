from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_job_runs_once_more_under_its_id(queue: Queue) -> None:
    queue.add("test -e fixed")
    assert queue("wait", "--all").code == 1
    queue.stoker.file("fixed", "")

    assert queue.ok("retry", "1") == "queued again job 1\n"
    assert queue("wait").code == 0

    job = queue.show(1)
    assert job["attempt"] == 2
    assert [attempt["state"] for attempt in job["attempts"]] == ["failed", "done"]


def test_retry_all_selects_jobs_that_did_not_succeed(queue: Queue) -> None:
    queue.add("true")
    queue.add("false")
    queue.add("exit 3")
    queue("wait")

    assert queue.ok("retry", "--all") == "queued again 2 jobs: 2-3\n"
    queue("wait")
    assert queue.ok("retry", "-s", "failed") == "queued again 2 jobs: 2-3\n"
    queue("wait")
    assert queue.ok("retry", "1") == "queued again job 1\n"


def test_retry_refuses_a_job_that_has_not_ended(queue: Queue) -> None:
    job = queue.add("sleep 60")
    queue.until_running(job)

    ended = queue("retry", "1")

    assert ended.code == 1
    assert ended.err.startswith("stoker: job 1 is running")
    assert queue("retry").code == 2
