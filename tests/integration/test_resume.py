from __future__ import annotations

from typing import TYPE_CHECKING

from integration.daemon_fixture import state_of

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_resume_all_continues_all_paused_jobs(queue: Queue) -> None:
    pids = []
    for number in (1, 2):
        queue.add(f"while [ ! -e go ]; do sleep 0.02; done; echo {number}")
        pids.append(queue.until_running(number))
    queue.ok("pause", "--all")
    queue.until(lambda: [state_of(pid) for pid in pids] == ["T", "T"])
    (queue.work / "go").touch()
    assert set(queue.states().values()) == {"paused"}

    assert queue.ok("resume", "--all") == "resumed 2 jobs: 1-2\n"
    assert queue("wait").code == 0


def test_resume_refuses_a_job_that_is_not_paused(queue: Queue) -> None:
    queue.add("--hold", "true")

    assert queue("resume", "1").err == "stoker: job 1 is held, not paused or suspended\n"
    assert queue.ok("resume", "--all") == "nothing is paused or suspended\n"
