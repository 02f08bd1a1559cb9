from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from patience import PATIENCE_S

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "while [ ! -e go ]; do sleep 0.01; done"


def test_the_output_comes_byte_for_byte_in_a_pipe(queue: Queue) -> None:
    queue.add("-g", "0", r"printf 'a\033[2Jb\377\r\n\000'")
    queue.ok("wait")

    assert queue("log", "1").stdout == b"a\x1b[2Jb\xff\r\n\0"


def test_on_a_terminal_only_colours_and_progress_bars_come_through(queue: Queue) -> None:
    queue.add("-g", "0", r"printf '\033[31mred\033[0m \033[2J\033]0;title\007 10%%\r20%%\n'")
    queue.ok("wait")

    with queue.terminal("log", "1") as terminal:
        assert terminal.read_all() == 0
    assert "\x1b[31mred\x1b[0m" in terminal.text
    assert "\x1b[2J" not in terminal.text
    assert "title" not in terminal.text
    assert "10%\r\x1b[K20%" in terminal.text


def test_log_prints_last_lines_and_earlier_attempts(queue: Queue) -> None:
    queue.add("-g", "0", "--retries", "1", "seq 1 5; echo try $STOKER_ATTEMPT; exit 1")
    queue("wait")

    assert queue.ok("log", "-n", "2", "@") == "5\ntry 2\n"
    assert queue.ok("log", "--attempt", "1", "-n", "1", "@") == "try 1\n"
    assert queue("log", "--attempt", "3", "@").code == 1
    assert queue("log", "-n", "-1", "@").code == 2
    assert queue("log", "--attempt", "0", "@").code == 2


def test_follow_shows_lines_as_they_come_and_ends_with_the_job(queue: Queue) -> None:
    queue.add("-g", "0", f"echo first; {HOLD}; echo last")

    process = queue.stoker.start("log", "-f", "@", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    (queue.work / "go").touch()
    out, _err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out) == (0, b"last\n")


def test_follow_goes_on_after_the_daemon_is_killed(queue: Queue) -> None:
    queue.add("-g", "0", f"echo first; {HOLD}; echo last")
    process = queue.stoker.start("log", "-f", "@", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"

    queue.ok("daemon", "restart")
    (queue.work / "go").touch()
    out, _err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out) == (0, b"last\n")


def test_the_daemon_has_a_log_too(queue: Queue) -> None:
    assert "started" in queue.ok("log", "daemon")


def test_a_job_that_does_not_exist_has_no_log(queue: Queue) -> None:
    ended = queue("log", "7")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "stoker: there is no job 7: stoker ls -a shows all\n"


def test_a_reader_that_goes_away_ends_log_quietly(queue: Queue) -> None:
    queue.add("-g", "0", "seq 1 200000")
    queue.ok("wait")

    process = queue.stoker.start("log", "@", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(timeout=PATIENCE_S) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_stopped_daemon_ends_follow_with_a_line_and_exit_1(queue: Queue) -> None:
    queue.add("-g", "0", f"echo first; {HOLD}")
    process = queue.stoker.start("log", "-f", "@", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    queue.ok("daemon", "stop")
    out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out) == (1, b"")
    first, second = err.decode().splitlines()
    assert first.startswith("stoker: the daemon was stopped; running jobs go on")
    assert second.startswith("stoker: the daemon was stopped and is not back after 10s")
    queue.start()
    (queue.work / "go").touch()
    queue.ok("wait", "1")
