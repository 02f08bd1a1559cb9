from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from patience import PATIENCE_S

if TYPE_CHECKING:
    from integration.door import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def test_one_failure_among_successes_is_exit_1(queue: Queue) -> None:
    queue.add("false")
    queue.add("true")

    ended = queue("wait")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "stoker: 1 failed: stoker ls -s failed tells which\n"
    assert queue("wait", "2").code == 0
    assert queue("wait", "1").code == 1


def test_an_empty_queue_is_nothing_to_wait_for(queue: Queue) -> None:
    assert queue("wait") == (0, b"", b"")


def test_only_those_named_are_waited_for(queue: Queue) -> None:
    queue.add("-n", "quick", "true")
    queue.add("--project", "p", HOLD)

    assert queue("wait", "quick").code == 0
    process = queue.stoker.start("wait", "-P", "p", stdin=subprocess.DEVNULL)
    assert process.poll() is None
    (queue.work / "go").touch()

    assert process.wait(timeout=PATIENCE_S) == 0


def test_waiting_outlasts_the_daemon(queue: Queue) -> None:
    queue.add(f"{HOLD}; exit 3")
    process = queue.stoker.start("wait", stdin=subprocess.DEVNULL)

    queue.ok("daemon", "restart")
    (queue.work / "go").touch()

    assert process.wait(timeout=PATIENCE_S) == 1


def test_a_terminal_gets_a_bar_and_a_summary(queue: Queue) -> None:
    queue.add("true")
    queue.add(HOLD)

    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "1/2" in text)
        (queue.work / "go").touch()
        assert terminal.read_all() == 0
        assert terminal.plain().rstrip().endswith("2 done")


def test_ctrl_c_leaves_the_jobs_alone(queue: Queue) -> None:
    job = queue.add(HOLD)

    with queue.terminal("wait") as terminal:
        terminal.read_until(lambda text: "running" in text)
        terminal.interrupt()
        assert terminal.read_all() == 130

    assert queue.show(job)["state"] == "running"


def test_unknown_ids_are_told(queue: Queue) -> None:
    assert queue("wait", "99").err == "stoker: there is no job 99: stoker ls -a shows all\n"
