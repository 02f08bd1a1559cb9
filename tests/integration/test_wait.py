from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from patience import PATIENCE_S

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def test_one_failure_among_successes_is_exit_1(queue: Queue) -> None:
    queue.add("false")
    queue.add("true")

    ended = queue("wait", "--all")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "stoker: 1 failed: stoker ls -s failed lists them\n"
    assert queue("wait", "2").code == 0
    assert queue("wait", "1").code == 1


def test_wait_ends_at_once_in_an_empty_queue(queue: Queue) -> None:
    assert queue("wait") == (0, b"", b"")


def test_wait_waits_only_for_named_jobs(queue: Queue) -> None:
    queue.add("-N", "quick", "true")
    queue.add("--project", "p", HOLD)

    assert queue("wait", "quick").code == 0
    process = queue.stoker.start("wait", "-P", "p", stdin=subprocess.DEVNULL)
    assert process.poll() is None
    (queue.work / "go").touch()

    assert process.wait(timeout=PATIENCE_S) == 0


def test_wait_goes_on_after_the_daemon_is_killed(queue: Queue) -> None:
    queue.add(f"{HOLD}; exit 3")

    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "waiting for what waits or runs now" in text)
        queue.ok("daemon", "restart")
        (queue.work / "go").touch()
        assert terminal.read_all() == 1
        assert terminal.plain().rstrip().endswith("1 failed: stoker ls -s failed lists them")


def test_a_terminal_gets_a_bar_and_a_summary(queue: Queue) -> None:
    queue.add("true")
    queue.add(HOLD)

    with queue.terminal("wait", "--all") as terminal:
        terminal.read_until(lambda text: "1/2" in text)
        (queue.work / "go").touch()
        assert terminal.read_all() == 0
        assert terminal.plain().rstrip().endswith("2 done")


def test_ctrl_c_leaves_the_jobs_alone(queue: Queue) -> None:
    job = queue.add(HOLD)

    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        terminal.interrupt()
        assert terminal.read_all() == 130

    assert queue.show(job)["state"] == "running"


def test_unknown_ids_are_reported(queue: Queue) -> None:
    assert queue("wait", "99").err == "stoker: there is no job 99: stoker ls -a shows all\n"


def test_without_ids_jobs_that_ended_before_do_not_count(queue: Queue) -> None:
    queue.add("false")
    assert queue("wait", "--all").code == 1

    told = (
        "stoker: nothing is waiting or running (1 failed before: stoker wait --all counts them)\n"
    )
    assert queue("wait") == (0, b"", told.encode())
    queue.add(HOLD)
    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        (queue.work / "go").touch()
        assert terminal.read_all() == 0


def test_without_ids_only_jobs_present_at_the_start_count(
    queue: Queue,
) -> None:
    queue.add(f"{HOLD}; exit 3")
    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        later = queue.add("sleep 600")
        (queue.work / "go").touch()
        assert terminal.read_all() == 1
        assert "waiting for what waits or runs now: 1 running" in terminal.plain()
    assert queue.show(later)["state"] == "running"


def test_a_failure_while_the_daemon_restarts_is_not_missed(queue: Queue) -> None:
    queue.add(f"{HOLD}; exit 3")
    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        queue.kill_daemon()
        (queue.work / "go").touch()
        assert terminal.read_all() == 1


def test_held_jobs_are_named_and_not_waited_for(queue: Queue) -> None:
    queue.add("--hold", "true")
    queue.add("--hold", "true")
    queue.add("sleep 0.2")

    ended = queue("wait")

    assert (ended.code, ended.out) == (0, "")
    told = "stoker: not waiting for held jobs 1-2 (stoker release 1-2)\n"
    assert ended.err == told
    assert queue.states() == {1: "held", 2: "held", 3: "done"}


def test_a_stopped_daemon_and_its_return_are_reported(queue: Queue) -> None:
    queue.add(HOLD)
    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        queue.ok("daemon", "stop")
        terminal.read_until(lambda text: "the daemon was stopped; running jobs go on" in text)
        queue.start()
        terminal.read_until(lambda text: "the daemon is back" in text)
        (queue.work / "go").touch()
        assert terminal.read_all() == 0


def test_a_daemon_that_stays_stopped_ends_the_wait_with_exit_1(queue: Queue) -> None:
    job = queue.add(HOLD)
    with queue.terminal("wait", columns=200) as terminal:
        terminal.read_until(lambda text: "0/1" in text)
        queue.ok("daemon", "stop")
        assert terminal.read_all() == 1
        assert (
            terminal.plain()
            .rstrip()
            .endswith(
                "stoker: the daemon was stopped and is not back after 10s: running jobs go on;"
                " stoker daemon start starts it, then ask again"
            )
        )
    queue.start()
    (queue.work / "go").touch()
    queue.ok("wait", str(job))


def test_an_unknown_project_is_an_error(queue: Queue) -> None:
    assert queue("wait", "-P", "nope").err == "stoker: no project 'nope'; no job has a project\n"
    queue.add("-P", "vision", "true")
    queue.add("-P", "rates", "true")

    for verb in ("wait", "ls", "kill", "retry", "rm", "hold", "pause"):
        ended = queue(verb, "-P", "nope")
        assert (ended.code, ended.out) == (1, ""), verb
        assert ended.err == "stoker: no project 'nope'; projects: rates, vision\n", verb
    assert queue("ls", "--json", "-P", "nope").code == 1
    assert queue("ls", "-a", "-P", "nope").code == 1


def test_a_paused_project_is_told_at_once_also_while_a_job_of_it_runs(queue: Queue) -> None:
    queue.add("-P", "vision", "sleep 1000")
    queue.until_running(1)
    queue.ok("pause", "--queue", "-P", "vision")
    queue.add("-P", "vision", "true")
    with queue.terminal("wait", "-P", "vision") as terminal:
        terminal.read_until(
            lambda shown: "project vision is paused (paused by hand): stoker resume" in shown
        )
        assert "nothing runs" not in terminal.plain()
        terminal.interrupt()
