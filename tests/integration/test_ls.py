from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def test_ls_lists_running_then_waiting_then_ended_jobs(queue: Queue) -> None:
    queue.add("-N", "quick", "exit 3")
    queue("wait")
    queue.add("-g", "2", "-N", "long", "--project", "vision", HOLD)
    queue.until_running(2)
    queue.add("-p", "5", "-g", "2", "true")

    header, *rows = queue.ok("ls").splitlines()

    assert re.fullmatch("ID +STATE +GPU +MEMORY +TOOK +WHEN +PRI +NAME +REASON +COMMAND", header)
    assert re.match(r"2 +running +0,1 ", rows[0])
    assert "vision/long" in rows[0]
    assert re.match(r"3 +waiting +×2 .* 5 ", rows[1])
    assert re.match(r"1 +failed +[01] .*quick +exit 3 +exit 3", rows[2])


def test_an_empty_queue_says_what_to_do_next_and_json_is_a_list(idle_queue: Queue) -> None:
    for _ in range(2):  # without a daemon, and with one
        ended = idle_queue("ls")
        assert (ended.code, ended.out) == (0, "")
        assert ended.err == "no job yet: stoker add python train.py\n"
        assert json.loads(idle_queue.ok("ls", "--json")) == []
        assert "stoker add" in idle_queue.shown("ls")
        idle_queue("daemon", "start")


def test_ls_selects_jobs_by_id_name_state_and_project(queue: Queue) -> None:
    queue.add("-N", "a", "true")
    queue.add("-N", "b", "--project", "p", "false")
    queue.add("true")
    queue("wait")

    assert set(queue.ls("1-2")) == {1, 2}
    assert set(queue.ls("a", "@")) == {1, 3}
    assert set(queue.ls("p/b")) == {2}
    assert set(queue.ls("-s", "done")) == {1, 3}
    assert set(queue.ls("-s", "failed,killed")) == {2}
    assert set(queue.ls("-P", "p")) == {2}
    assert queue("ls", "99").err == "stoker: there is no job 99: stoker ls -a shows all\n"
    assert queue("ls", "-s", "nonsense").code == 2


def test_a_long_list_is_cut_and_says_so_and_all_shows_it_whole(queue: Queue) -> None:
    queue.ok("add", "-g", "0", "--batch", "-", stdin="true\n" * 100)
    queue.ok("wait")

    short, whole = queue("ls"), queue("ls", "-a")

    assert len(short.out.splitlines()) < 50
    assert re.fullmatch(r"… \d+ more done: -a shows all\n", short.err)
    assert len(whole.out.splitlines()) == 101
    assert whole.err == ""
    assert len(queue.ls()) == 100
    shown = queue.shown("ls", columns=60, lines=20).splitlines()
    assert len(shown) <= 20
    assert max(map(len, shown)) <= 60
    assert shown[-1].endswith("-a shows all")


def test_hostile_names_and_commands_cannot_control_a_terminal(queue: Queue) -> None:
    queue.add("-g", "0", "echo '\x1b[2J\x1b]0;title\x07'")
    queue.ok("wait")

    with queue.terminal("ls") as terminal:
        terminal.read_all()
        assert "\x1b[2J" not in terminal.text
        assert "\x1b]" not in terminal.text
    assert "\x1b" not in queue.ok("ls")
    assert "\x1b" not in queue.ok("show", "@")


def test_watch_shows_changes_and_ends_with_ctrl_c(queue: Queue) -> None:
    job = queue.add("-N", "watched", HOLD)

    with queue.terminal("ls", "--watch") as terminal:
        terminal.read_until(lambda text: "1 running" in text)
        (queue.work / "go").touch()
        terminal.read_until(lambda text: "1 done" in text)
        queue.add("-N", "another", "true")
        terminal.read_until(lambda text: "another" in text)
        queue.ok("daemon", "restart")
        queue.add("-N", "later", "true")
        terminal.read_until(lambda text: "later" in text)
        terminal.interrupt()
        assert terminal.read_all() == 0
        assert "\x1b[?1049h" in terminal.text
        assert "\x1b[?1049l" in terminal.text
    assert job == 1


def test_watch_needs_a_terminal(queue: Queue) -> None:
    assert queue("ls", "--watch").code == 2


def test_a_full_disk_behind_the_output_is_one_clear_line(queue: Queue) -> None:
    queue.add("true")
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "stoker", "ls"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=queue.env,
            cwd=queue.work,
        )

    assert process.returncode == 1
    told = b"cannot write the output: No space left on device: free some space and try again\n"
    assert process.stderr == b"stoker: " + told
