from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_held_job_waits_for_its_release_also_over_a_restart(queue: Queue) -> None:
    job = queue.add("--hold", "echo ran")
    assert queue.show(job)["state"] == "held"
    queue.ok("daemon", "restart")
    assert queue.show(job)["state"] == "held"

    assert queue.ok("release", str(job)) == f"released job {job}\n"
    queue.ok("wait")
    assert queue.ok("log", str(job)) == "ran\n"


def test_a_project_is_held_and_running_jobs_are_refused(queue: Queue) -> None:
    running = queue.add("-g", "2", "-P", "p", "sleep 60")
    queue.add("-P", "p", "true")
    queue.add("true")
    queue.until_running(running)

    assert queue.ok("hold", "-P", "p") == "held job 2\n"
    ended = queue("hold", "1", "3")
    assert ended.code == 1
    assert ended.out == "held job 3\n"
    assert ended.err == "stoker: job 1 is running: only what has not begun can be held\n"
    assert list(queue.ls("-s", "held")) == [2, 3]
    assert queue.ok("hold", "--all") == "nothing to hold\n"


def test_hold_without_a_selection_is_refused(queue: Queue) -> None:
    ended = queue("hold")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("stoker: which jobs? stoker hold 12")
    assert json.loads(queue.ok("ls", "--json")) == []
