from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_removed_job_is_gone_with_its_log_and_its_id_is_not_used_again(queue: Queue) -> None:
    queue.add("-g", "0", "echo x")
    queue.add("-g", "0", "-o", "kept.log", "echo y")
    queue.ok("wait")
    log = queue.home / "logs" / "0" / "1.1.log"
    assert log.exists()

    assert queue.ok("rm", "1", "2") == "removed 2 jobs: 1-2\n"

    assert queue.ls() == {}
    assert not log.exists()
    assert queue.stoker.read("kept.log") == ["y"]
    assert queue.add("-g", "0", "true") == 3


def test_a_running_job_is_removed_only_with_kill(queue: Queue) -> None:
    job = queue.add("sleep 60")
    queue.until_running(job)

    refused = queue("rm", str(job))
    assert refused.code == 1
    assert refused.err == "stoker: job 1 is running: rm --kill ends it first\n"
    assert queue.ok("rm", "--kill", str(job)) == "removed job 1\n"

    assert queue.ls() == {}


def test_rm_all_selects_ended_jobs_and_with_kill_all_jobs(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait")
    queue.add("-g", "2", "sleep 60")
    queue.until_running(2)
    queue.add("true")

    assert queue.ok("rm", "--all") == "removed job 1\n"
    assert set(queue.ls()) == {2, 3}


def test_naming_no_job_is_wrong_usage(queue: Queue) -> None:
    assert queue("rm").code == 2


def test_rm_all_with_kill_removes_waiting_jobs_before_they_start(queue: Queue) -> None:
    queue.add("-g", "2", "sleep 60")
    queue.until_running(1)
    queue.add("true")

    assert queue.ok("rm", "--all", "--kill") == "removed 2 jobs: 1-2\n"
    assert queue.ok("rm", "--all") == "nothing to remove\n"
