from __future__ import annotations

import time
from typing import TYPE_CHECKING

from integration.daemon_fixture import state_of

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

COUNT = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"


def test_a_paused_process_tree_stops_and_keeps_its_gpu(queue: Queue) -> None:
    job = queue.add(COUNT)
    pid = queue.until_running(job)

    ended = queue("pause", str(job))
    assert (ended.code, ended.out) == (0, f"paused job {job}\n")
    assert "memory stay taken" in ended.err
    queue.until(lambda: state_of(pid) == "T")
    before = queue.ok("log", "@")
    time.sleep(0.2)  # not to wait for anything: this is the time in which nothing is to happen
    assert queue.ok("log", "@") == before
    status = queue.ok("status")
    assert "1 paused" in status
    assert "paused" in [
        line.split()[-1] for line in status.splitlines() if line[:1] in "01" and line
    ]
    assert "is paused on GPU" in queue.ok("why", "@")

    assert queue.ok("resume", str(job)) == f"resumed job {job}\n"
    queue.until(lambda: len(queue.ok("log", "@")) > len(before))


def test_a_paused_job_stays_so_when_the_daemon_is_killed(queue: Queue) -> None:
    job = queue.add(COUNT)
    pid = queue.until_running(job)
    queue.ok("pause", str(job))
    queue.kill_daemon()

    assert queue.show(job)["state"] == "paused"
    queue.until(lambda: state_of(pid) == "T")
    queue.ok("resume", str(job))
    queue.until(lambda: state_of(pid) in "SR")


def test_a_paused_job_can_be_killed(queue: Queue) -> None:
    job = queue.add("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done")
    queue.until_running(job)
    queue.until(lambda: queue.ok("log", "@") == "ready\n")
    queue.ok("pause", str(job))
    queue.ok("kill", str(job))
    queue("wait")

    assert queue.show(job)["state"] == "killed"
    assert queue.ok("log", "@").endswith("bye\n")


def test_a_paused_queue_starts_nothing_until_it_is_resumed(queue: Queue) -> None:
    running = queue.add("sleep 60")
    queue.until_running(running)
    assert queue.ok("pause", "--queue").startswith("the queue is paused: what runs goes on")
    ended = queue("add", "true")
    assert ended.out == "added job 2\n"
    assert "job 2 is waiting: the queue is paused" in ended.err
    queue.ok("daemon", "restart")

    assert queue.states() == {1: "running", 2: "waiting"}
    listed, shown = queue("ls"), queue.ok("status")
    assert "the queue is paused (paused by hand): stoker resume --queue" in listed.err
    assert "the queue is paused (paused by hand): stoker resume --queue" in shown
    assert "the queue is paused" in queue.shown("ls")
    assert "the queue is paused" in queue.ok("why", "2")

    assert queue.ok("resume", "--queue") == "the queue goes on\n"
    queue.ok("wait", "2")


def test_one_project_can_be_paused(queue: Queue) -> None:
    queue.ok("pause", "--queue", "-P", "p")
    queue.add("-P", "p", "true")
    queue.add("-P", "q", "true")
    queue.ok("wait", "2")

    assert queue.states() == {1: "waiting", 2: "done"}
    assert "p, paused: paused by hand" in queue.ok("ls")
    assert queue.ok("resume", "--queue", "-P", "p") == "project p goes on\n"
    queue.ok("wait")


def test_wrong_words_are_one_clear_line(queue: Queue) -> None:
    assert queue("pause", "--queue", "3").code == 2
    assert queue("resume", "--queue").err == "stoker: the queue is not paused\n"
    assert queue("resume", "--queue", "-P", "x").err == "stoker: project x is not paused\n"
    assert queue("pause").code == 2


def test_wait_reports_that_nothing_will_start_by_itself(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    queue.add("true")
    queue.add("--hold", "true")
    waiting = queue.stoker.start("wait")
    assert waiting.stderr is not None
    lines = [waiting.stderr.readline().decode() for _ in range(2)]
    assert lines == [
        "stoker: not waiting for held job 2 (stoker release 2)\n",
        (
            "stoker: still waiting, but nothing runs; the queue is paused"
            " (paused by hand): stoker resume --queue\n"
        ),
    ]
    queue.ok("resume", "--queue")

    ended = queue.stoker.end(waiting)
    assert (ended.code, ended.err) == (0, "")
