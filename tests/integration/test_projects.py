"""What is the same for all jobs of a project: its limit, its GPUs, its brake, its lines in a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_limit_and_gpus_of_its_own(queue: Queue) -> None:
    queue.ok("config", "limit.p", "1")
    queue.ok("config", "gpus.p", "1")
    for _ in range(2):
        queue.add("-P", "p", "sleep 60")
    queue.until_running(1)

    assert queue.show(1)["slots"] == "1"
    assert queue.ok("why", "2") == (
        "job 2 waits: project p runs 1 job, its limit (stoker config limit.p)\n"
    )
    queue.ok("config", "limit.p", "--reset")
    assert "GPU 0 is not for its project, GPU 1 held by job 1" in queue.ok("why", "2")
    queue.ok("config", "gpus.p", "--reset")
    queue.until_running(2)


def test_nonsense_is_refused(queue: Queue) -> None:
    for value in ("0", "-1", "two"):
        ended = queue("config", "limit.p", "--", value)
        assert ended.code == 2, ended
        assert "limit.p cannot be" in ended.err
    assert "this queue has the GPUs 0, 1" in queue("config", "gpus.p", "7").err


def test_equal_failures_in_a_row_stop_it_and_it_says_why(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    for number in range(6):
        queue.add("-P", "bad", "-g", "2", f"sleep 0.2; echo {number} >> ran; exit 3")
    queue.add("-P", "good", "true")
    queue.ok("resume", "--queue")
    queue.ok("wait", "7")
    queue.until(lambda: "bad, paused: 3 jobs in a row failed: exit 3" in queue.ok("ls"))

    assert queue.stoker.read("ran") == ["0", "1", "2"]
    told = "project bad is paused (3 jobs in a row failed: exit 3): stoker resume --queue -P bad"
    assert told in queue.ok("status")
    assert told.partition(":")[0] in queue.ok("why", "4")
    queue.ok("resume", "--queue", "-P", "bad")
    queue("wait")
    assert queue.stoker.read("ran") == ["0", "1", "2", "3", "4", "5"]


def test_equal_failures_of_jobs_without_a_project_pause_these(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    for number in range(6):
        queue.add("-g", "2", f"sleep 0.2; echo {number} >> ran; exit 3")
    queue.add("-P", "good", "true")
    queue.add("-P", "fine", "true")
    queue.ok("resume", "--queue")
    queue.ok("wait", "7")
    told = (
        "jobs without a project are paused (3 jobs in a row failed: exit 3): stoker resume --queue"
    )
    queue.until(lambda: told in queue.ok("status"))

    assert queue.stoker.read("ran") == ["0", "1", "2"]
    assert queue.ok("why", "4") == f"job 4 waits: {told}\n"
    listed = queue("ls")
    assert "no project, paused: 3 jobs in a row failed: exit 3" in listed.out
    assert told in listed.err
    assert told not in queue("ls", "-P", "good").err
    added = queue("add", "-g", "2", "true")
    assert added.err == f"stoker: job 9 is waiting: {told}\n"
    queue.ok("kill", "9")
    assert queue.ok("resume", "--queue") == "the queue goes on\n"
    queue("wait")
    assert queue.stoker.read("ran") == ["0", "1", "2", "3", "4", "5"]
    again = queue("resume", "--queue")
    assert (again.code, again.err) == (1, "stoker: the queue is not paused\n")


def test_a_list_of_several_is_grouped(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    queue.add("-P", "vision", "-N", "a", "true")
    queue.add("-P", "ears", "-N", "b", "true")
    queue.add("-N", "c", "true")
    queue.add("-P", "vision", "-N", "d", "true")

    lines = [line.split()[0] for line in queue.ok("ls").splitlines()]
    assert lines == ["ID", "vision", "1", "4", "ears", "2", "no", "3"]
    names = [line for line in queue.shown("ls").splitlines() if line.strip()]
    assert [line.split()[0] for line in names[:8]] == lines
    of_one = queue.ok("ls", "-P", "ears")
    assert of_one.splitlines()[1].split()[0] == "2"
    assert " b " in of_one
    assert "ears/" not in of_one
    queue.ok("kill", "--all")
    queue.ok("rm", "2,3")
    alone = queue.ok("ls").splitlines()
    assert alone[1] == "vision", "all are of one project: it is no part of each name"
    assert "vision/" not in "".join(alone)
