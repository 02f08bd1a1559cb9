from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_running_job_gets_sigterm_and_its_grace_time(queue: Queue) -> None:
    job = queue.add("trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    queue.until(lambda: queue.ok("log", "@") == "ready\n")

    assert queue.ok("kill", str(job)) == "ending job 1\n"
    assert queue("wait", "--all").code == 1

    assert queue.ok("log", "@").endswith("tidied\n")
    assert queue.show()["state"] == "killed"


def test_a_job_that_ignores_sigterm_is_killed_with_its_children_after_the_grace_time(
    queue: Queue,
) -> None:
    job = queue.add("trap '' TERM; (trap '' TERM; setsid sleep 60) & echo $!; wait; sleep 60")
    pid = queue.until_running(job)
    queue.until(lambda: queue.ok("log", "@"))

    queue.ok("kill", "--grace", "0s", "@")
    queue("wait")

    queue.until(lambda: not queue.stoker.is_alive(pid))
    queue.until(lambda: not any("sleep 60" in words for words in queue.stoker.processes().values()))
    assert queue.show(job)["state"] == "killed"


def test_a_waiting_job_never_starts(queue: Queue) -> None:
    queue.add("-g", "2", "sleep 60")
    queue.add("touch started")

    assert queue.ok("kill", "2") == "ending job 2\n"

    assert queue.show(2)["state"] == "killed"
    queue.ok("kill", "--grace", "0", "--all")
    queue("wait")
    assert not (queue.work / "started").exists()


def test_jobs_are_selected_by_words_ranges_and_states(queue: Queue) -> None:
    for _ in range(7):
        queue.add("-g", "2", "--project", "p", "sleep 60")
    queue.until_running(1)

    assert queue.ok("kill", "2", "4-5") == "ending 3 jobs: 2,4-5\n"
    assert queue.ok("kill", "-s", "waiting") == "ending 3 jobs: 3,6-7\n"
    assert queue.ok("kill", "-P", "p", "--grace", "0") == "ending job 1\n"
    queue.until(lambda: queue.show(1)["state"] == "killed")
    assert queue.ok("kill", "--all") == "nothing to end\n"


def test_an_ended_job_is_refused_and_the_others_are_killed(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait")
    queue.add("sleep 60")

    ended = queue("kill", "1", "2", "--grace", "0")

    assert ended.code == 1
    assert ended.out == "ending job 2\n"
    assert ended.err == "stoker: job 1 is done already\n"


@pytest.mark.parametrize("words", [[], ["--grace", "1"], ["--grace", "x", "1"], ["-s", "gone"]])
def test_wrong_usage_ends_nothing(queue: Queue, words: list[str]) -> None:
    job = queue.add("sleep 60")

    ended = queue("kill", *words, *([] if words[:1] != ["--grace"] or len(words) > 2 else ["1"]))

    assert ended.code == 2
    assert ended.err.startswith("stoker: ")
    assert queue.show(job)["state"] in ("waiting", "starting", "running")


def test_unknown_ids_end_nothing(queue: Queue) -> None:
    ended = queue("kill", "99")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "stoker: there is no job 99: stoker ls -a shows all\n"


def test_an_outside_kill_is_noticed_with_its_signal(queue: Queue) -> None:
    pid = queue.until_running(queue.add("exec sleep 60"))

    os.kill(pid, 9)

    assert queue("wait", "--all").code == 1
    assert queue.show()["signal"] == 9
    assert queue.show()["state"] == "failed"
