from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from patience import AT_ONCE_S, PATIENCE_S

if TYPE_CHECKING:
    from conftest import Stoker

# A job that runs until the file `go` is there, and says in `ran` that it came to its end.
WAIT = "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo a >> ran\n"
# A tree of three, of which none listens to SIGTERM.
TREE = (
    "trap '' TERM INT; echo $$ >> pids; sh -c 'echo $$ >> pids; sleep 60; :' &"
    " (setsid sh -c 'echo $$ >> pids; sleep 60; :' &) ; while :; do sleep 0.05; done\n"
)


def start(stoker: Stoker, lines: str, *words: str, pids: int) -> subprocess.Popen[bytes]:
    """Start a run whose input stays open, and wait until its jobs have told so many pids."""
    process = stoker.start("run", "--gpus", "0,1", *words)
    assert process.stdin is not None
    process.stdin.write(lines.encode())
    process.stdin.flush()
    stoker.until(lambda: len(stoker.read("pids")) == pids, f"{pids} pids")
    return process


def living(stoker: Stoker) -> list[int]:
    return [int(pid) for pid in stoker.read("pids") if stoker.is_alive(int(pid))]


def hear(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Read stoker's messages until one has this text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(stoker: Stoker, signum: signal.Signals) -> None:
    process = start(stoker, WAIT * 5, pids=2)

    process.send_signal(signum)
    hear(process, signum.name.encode() + b": starting no more; 2 still running")
    assert len(living(stoker)) == 2
    stoker.file("go", "")
    ended = stoker.end(process)

    assert (ended.code, stoker.read("ran")) == (1, ["a", "a"])
    assert "2 done, the rest was not started" in ended.err
    assert "--resume" in ended.err


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_kills_all_trees(stoker: Stoker, signum: signal.Signals) -> None:
    process = start(stoker, TREE * 3, pids=6)

    process.send_signal(signum)
    hear(process, b"2 still running")
    process.send_signal(signum)
    ended = stoker.end(process)

    assert (ended.code, living(stoker)) == (1, [])
    assert "0 done, 2 killed, the rest was not started" in ended.err
    assert [row.outcome for row in stoker.rows()] == ["killed", "killed"]


def test_two_signals_at_once_are_two_signals(stoker: Stoker) -> None:
    process = start(stoker, TREE, pids=3)

    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    ended = stoker.end(process)

    assert (ended.code, living(stoker)) == (1, [])


def test_jobs_claimed_in_advance_do_not_start_after_the_first_signal(stoker: Stoker) -> None:
    quick = "echo quick >> ran\n" * 40
    process = start(stoker, quick + WAIT * 2 + quick, pids=2)

    process.send_signal(signal.SIGINT)
    hear(process, b"starting no more")
    stoker.file("go", "")
    ended = stoker.end(process)

    assert ended.code == 1
    assert stoker.read("ran").count("a") == 2
    assert {row.state for row in stoker.rows()} <= {"done", "waiting"}
    assert len(stoker.read("ran")) == sum(row.state == "done" for row in stoker.rows())


def test_a_drained_run_can_be_resumed(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", WAIT * 3)
    process = stoker.start("run", file, "--gpus", "0", "--name", "x")
    stoker.until(lambda: stoker.read("pids"))
    process.send_signal(signal.SIGINT)
    hear(process, b"starting no more")
    stoker.file("go", "")
    assert stoker.end(process).code == 1

    ended = stoker.run(file, "--gpus", "0", "--name", "x", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a"] * 3)


def test_a_stopped_terminal_is_no_reason_to_stay(stoker: Stoker) -> None:
    process = start(stoker, TREE, pids=3)

    process.send_signal(signal.SIGHUP)  # what a closed terminal sends

    assert process.wait(timeout=PATIENCE_S) == -signal.SIGHUP
    stoker.until(lambda: not living(stoker), deadline_s=AT_ONCE_S)


def test_nohup_is_a_reason_to_stay(stoker: Stoker) -> None:
    words = ["nohup", sys.executable, "-m", "stoker", "run", "--gpus", "0", "jobs.txt"]
    stoker.file("jobs.txt", WAIT * 2)
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=stoker.env,
        cwd=stoker.work,
    )
    stoker.adopt(process)
    stoker.until(lambda: stoker.read("pids"), "the first runs")

    process.send_signal(signal.SIGHUP)
    stoker.file("go", "")

    assert (stoker.end(process).code, stoker.read("ran")) == (0, ["a", "a"])


def test_leftovers_get_their_grace_and_then_end(stoker: Stoker) -> None:
    lines = "sleep 60 & echo $! >> pids\n(setsid sleep 60 & echo $! >> pids)\necho next >> ran\n"

    ended = stoker.run("--gpus", "0", lines=lines)

    assert (ended.code, stoker.read("ran"), living(stoker)) == (0, ["next"], [])


def test_leftovers_that_end_in_time_are_left_in_peace(stoker: Stoker) -> None:
    lines = "(trap '' TERM; sleep 0.3; echo late >> ran) &\n"

    ended = stoker.run("--gpus", "0", lines=lines)

    assert (ended.code, stoker.read("ran")) == (0, ["late"])


def test_a_job_that_goes_on_keeps_what_it_has_sent_away(stoker: Stoker) -> None:
    job = "(setsid sh -c 'sleep 6; echo helper >> ran' &); until [ -e ran ]; do sleep 0.05; done\n"

    ended = stoker.run("--gpus", "0,1", lines=job + "true\n")

    assert (ended.code, stoker.read("ran")) == (0, ["helper"])


def test_a_killed_supervisor_ends_the_run_and_all_its_jobs(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", f"echo a >> ran\n[ -e go ] && exit; {TREE}")
    process = stoker.start("run", file, "--gpus", "0")
    stoker.until(lambda: len(stoker.read("pids")) == 3)

    os.kill(stoker.supervisor(process), signal.SIGKILL)
    ended = stoker.end(process)

    assert (ended.code, living(stoker)) == (1, [])
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith("stoker: a supervisor process died")
    stoker.file("go", "")
    assert stoker.run(file, "--gpus", "0", "--resume").code == 0
    assert stoker.read("ran") == ["a"]
    assert [row.outcome for row in stoker.rows()] == ["done", "lost", "done"]


def test_a_supervisor_killed_while_it_waits_for_leftovers_leaves_none(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", "(trap '' TERM; echo $$ > first; sleep 60) & echo $! >> pids\n")
    process = stoker.start("run", file, "--gpus", "0")
    (first,) = stoker.until(lambda: stoker.read("first"), "it has left something")
    stoker.until(lambda: not stoker.is_alive(int(first)), "its first process has ended")
    supervisor = stoker.supervisor(process)
    assert living(stoker)

    os.kill(supervisor, signal.SIGKILL)
    process.wait(timeout=PATIENCE_S)

    stoker.until(lambda: not living(stoker), "the leftover has ended", deadline_s=AT_ONCE_S)


def test_a_supervisor_that_dies_with_words_unread_is_no_riddle(stoker: Stoker) -> None:
    process = start(stoker, WAIT * 2, pids=2)
    supervisor = stoker.supervisor(process)

    os.kill(supervisor, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    hear(process, b"starting no more")
    process.send_signal(signal.SIGINT)  # asks a supervisor that cannot listen to kill
    stoker.until(lambda: _has_heard(process.pid))
    process.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    stoker.until(lambda: not stoker.is_alive(supervisor))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    ended = stoker.end(process)

    assert (ended.code, living(stoker)) == (1, [])
    assert "Traceback" not in ended.err


def _has_heard(pid: int) -> bool:
    """Whether a process has no signal to come, and waits for events again."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        status = dict(line.split(":", 1) for line in file)
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return not pending and status["State"].strip().startswith("S")
