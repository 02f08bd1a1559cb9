from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def pid_of(queue: Queue) -> int:
    return int(json.loads(queue.ok("status", "--json"))["pid"])


def test_starting_twice_says_so(idle_queue: Queue) -> None:
    first = idle_queue.ok("daemon", "start", "--gpus", "0,1")
    again = idle_queue.ok("daemon", "start")
    same = idle_queue.ok("daemon", "start", "--gpus", "0-1")
    other = idle_queue("daemon", "start", "--gpus", "2")

    assert re.fullmatch(r"started \(pid \d+\), on GPU 0, 1\n", first)
    assert re.fullmatch(r"a daemon runs already \(pid \d+\)\n", again)
    assert same == again
    assert other.code == 1
    assert "stoker daemon restart --gpus 2" in other.err


def test_the_gpus_named_once_are_remembered(queue: Queue) -> None:
    queue.ok("daemon", "stop")

    assert queue.ok("daemon", "start").endswith("on GPU 0, 1\n")
    assert queue.ok("daemon", "restart", "--gpus", "2,3").endswith("on GPU 2, 3\n")
    assert queue.ok("daemon", "restart").endswith("on GPU 2, 3\n")


def test_stopping_leaves_jobs_running_and_the_next_daemon_knows_how_they_ended(
    queue: Queue,
) -> None:
    job = queue.add(f"{HOLD}; exit 7")
    pid = queue.until_running(job)
    daemon = pid_of(queue)

    told = queue.ok("daemon", "stop")

    assert told == "stopped; 1 job runs on, stoker daemon start takes them up again\n"
    assert not queue.stoker.is_alive(daemon)
    assert queue.stoker.is_alive(pid)
    assert queue("ls").code == 1
    (queue.work / "go").touch()
    queue.until(lambda: not queue.stoker.is_alive(pid))
    queue.ok("daemon", "start")
    assert queue("wait", "--all").code == 1
    assert queue.show(job)["exit_code"] == 7
    assert queue.show(job)["attempt"] == 1


def test_stopping_with_kill_ends_the_jobs(queue: Queue) -> None:
    pid = queue.until_running(queue.add("sleep 60"))

    assert queue.ok("daemon", "stop", "--kill") == "stopped\n"

    assert not queue.stoker.is_alive(pid)
    assert queue.ok("daemon", "stop") == "no daemon runs\n"


def test_a_killed_daemon_is_started_by_the_next_add_and_knows_what_happened(queue: Queue) -> None:
    job = queue.add("-g", "0", "--", "sh", "-c", f"{HOLD}; exit 7")
    queue.until_running(job)

    queue.kill_daemon()
    (queue.work / "go").touch()
    queue.add("-g", "0", "true")
    queue("wait")

    shown = queue.show(job)
    assert (shown["state"], shown["exit_code"], shown["attempt"]) == ("failed", 7, 1)


def test_a_restart_with_wrong_gpus_keeps_the_daemon(queue: Queue) -> None:
    daemon = pid_of(queue)

    ended = queue("daemon", "restart", "--gpus", "17")

    assert ended.code == 2
    assert pid_of(queue) == daemon


def test_daemon_status_is_exit_1_without_a_daemon(idle_queue: Queue) -> None:
    ended = idle_queue("daemon", "status")

    assert (ended.code, ended.err) == (1, "stoker: no daemon runs: stoker daemon start\n")
    idle_queue.start()
    assert "pid" in idle_queue.ok("daemon", "status")


@pytest.mark.parametrize(
    "words", [[], ["dance"], ["stop", "--gpus", "0"], ["start", "--kill"], ["status", "--kill"]]
)
def test_wrong_usage_is_one_line(idle_queue: Queue, words: list[str]) -> None:
    ended = idle_queue("daemon", *words)

    assert ended.code == 2
    assert ended.err.startswith("stoker: ")
    assert ended.err.count("\n") == 1


def systemd(queue: Queue, folder: Path) -> dict[str, str]:
    """Return an environment with a systemd that writes down what it is told."""
    tools = folder / "tools"
    tools.mkdir()
    for name, script in (
        ("systemctl", f'echo "$@" >> {folder}/told\n'),
        ("loginctl", 'case "$*" in *Linger*) echo no;; *) echo yes;; esac\n'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{script}")
        (tools / name).chmod(0o755)
    return {"PATH": f"{tools}:{queue.env['PATH']}", "XDG_CONFIG_HOME": str(folder / "config")}


def test_installing_writes_enables_and_starts_a_unit_and_warns(
    queue: Queue, tmp_path: Path
) -> None:
    job = queue.add(HOLD)
    pid = queue.until_running(job)

    ended = queue("daemon", "install", env=systemd(queue, tmp_path))

    assert ended.code == 0, ended
    (unit,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    text = unit.read_text()
    assert "KillMode=process" in text
    assert "stoker.daemon" in text
    assert f"STOKER_HOME={queue.home}" in text
    told = (tmp_path / "told").read_text()
    assert f"--user enable --now {unit.name}" in told
    assert "loginctl enable-linger" in ended.err
    assert queue.stoker.is_alive(pid)
    (queue.work / "go").touch()
    queue.start()
    queue.ok("wait")


def test_without_systemd_one_line_says_what_to_do_instead(queue: Queue, tmp_path: Path) -> None:
    ended = queue("daemon", "install", env={"PATH": str(tmp_path)})

    assert ended.code == 1
    assert ended.err.startswith("stoker: there is no systemd")
    assert "crontab" in ended.err
    assert ended.err.count("\n") == 1


def test_stop_with_kill_ends_also_what_a_dead_daemon_has_left(queue: Queue) -> None:
    job = queue.add("sleep 600")
    pid = queue.until_running(job)
    queue.kill_daemon()

    assert "what it had left running was ended" in queue.ok("daemon", "stop", "--kill")
    assert not os.path.exists(f"/proc/{pid}")
    queue.start()
    assert queue.show(job)["state"] in ("failed", "killed", "lost")
