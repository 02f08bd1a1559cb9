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

# The job's name goes into `ran` when it succeeds; the one called `hold` waits for the file `go`.
HOLD = "[ -e go ] || { touch holds; exec sleep 60; }; echo hold >> ran"


def successes(stoker: Stoker) -> list[int]:
    return [row.job for row in stoker.rows() if row.outcome == "done"]


def start_and_hold(stoker: Stoker, *words: str) -> subprocess.Popen[bytes]:
    process = stoker.start("run", *words)
    stoker.until((stoker.work / "holds").exists)
    return process


def kill_and_wait(stoker: Stoker, process: subprocess.Popen[bytes]) -> None:
    """End stoker as no handler can see; nothing of it may be left in grace."""
    process.kill()
    process.wait()
    stoker.until(lambda: not stoker.processes(), "nothing is alive", deadline_s=AT_ONCE_S)


def test_what_was_killed_with_stoker_runs_again_and_nothing_else(stoker: Stoker) -> None:
    lines = "echo a >> ran\n" * 3 + HOLD + "\n" + "echo a >> ran\n" * 3
    file = stoker.file("jobs.txt", lines)
    kill_and_wait(stoker, start_and_hold(stoker, file, "--gpus", "0"))
    assert stoker.read("ran") == ["a"] * 3
    stoker.file("go", "")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a", "a", "a", "hold", "a", "a", "a"])
    assert successes(stoker) == [1, 2, 3, 4, 5, 6, 7]
    assert [row.outcome for row in stoker.rows() if row.job == 4] == ["lost", "done"]


STUBBORN = {
    "ignores SIGTERM": "trap '' TERM INT HUP; echo $$ >> pids; while :; do sleep 0.05; done",
    "makes a session of its own": "setsid sh -c 'echo $$ >> pids; exec sleep 60'",
    "forks twice": "(setsid sh -c 'echo $$ >> pids; exec sleep 60' &) ; echo $$ >> pids; sleep 60",
    "forgets who it is": "(env -i setsid sh -c 'echo $$ >> pids; sleep 60; :' &) ; sleep 60",
    "closes all its files": "exec 0<&- 1>&- 2>&-; echo $$ >> pids; sleep 60; :",
}


@pytest.mark.parametrize("job", STUBBORN.values(), ids=STUBBORN.keys())
def test_no_tree_outlives_a_killed_stoker_by_a_second(stoker: Stoker, job: str) -> None:
    process = stoker.start("run", "--gpus", "0,1")
    assert process.stdin is not None
    process.stdin.write(f"{job}\n{job}\n".encode())
    process.stdin.flush()
    expected = 4 if job.count("pids") == 2 else 2
    stoker.until(lambda: len(stoker.read("pids")) == expected)

    kill_and_wait(stoker, process)

    assert [pid for pid in map(int, stoker.read("pids")) if stoker.is_alive(pid)] == []


def test_a_run_within_a_run_goes_with_it(stoker: Stoker) -> None:
    stoker.file("inner.txt", "trap '' TERM; echo $$ >> pids; while :; do sleep 0.05; done\n")
    process = stoker.start("run", "--gpus", "0")
    assert process.stdin is not None
    process.stdin.write(f"{sys.executable} -m stoker run inner.txt --gpus 1\n".encode())
    process.stdin.flush()
    stoker.until(lambda: stoker.read("pids"))

    kill_and_wait(stoker, process)

    assert not stoker.is_alive(int(stoker.read("pids")[0]))


def test_a_run_that_still_goes_on_cannot_be_resumed(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", f"{HOLD}\n")
    process = start_and_hold(stoker, file, "--gpus", "0")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"stoker: that run is still going on (process {process.pid}):"
        " stop it first, or wait for its end\n"
    )
    kill_and_wait(stoker, process)


def test_a_success_that_stoker_did_not_live_to_hear_of_is_known_from_the_journal(
    stoker: Stoker,
) -> None:
    line = "[ -e go ] || echo waits >> state; until [ -e go ]; do sleep 0.01; done; echo a >> ran\n"
    file = stoker.file("jobs.txt", line)
    process = stoker.start("run", file, "--gpus", "0")
    stoker.until(lambda: stoker.read("state"))

    process.send_signal(signal.SIGSTOP)  # it hears of nothing any more
    stoker.file("go", "")
    journal = stoker.folders()[0] / "journal"
    stoker.until(lambda: "end 1.1 0 " in journal.read_text())
    kill_and_wait(stoker, process)
    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a"])
    assert successes(stoker) == [1]


def test_a_success_during_the_last_moments_of_a_killed_run_is_known_too(stoker: Stoker) -> None:
    line = "[ -e go ] || echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo a >> ran\n"
    file = stoker.file("jobs.txt", line)
    process = stoker.start("run", file, "--gpus", "0")
    pid = int(stoker.until(lambda: stoker.read("pids"))[0])
    supervisor = stoker.supervisor(process)

    os.kill(supervisor, signal.SIGSTOP)
    stoker.file("go", "")
    stoker.until(lambda: not stoker.is_alive(pid))
    process.kill()
    process.wait()
    os.kill(supervisor, signal.SIGCONT)  # it sees at once that the job has ended, and its client
    stoker.until(lambda: not stoker.processes(), deadline_s=AT_ONCE_S)
    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a"])
    assert successes(stoker) == [1]


def test_a_journal_that_a_power_cut_took_away_stops_no_resume(stoker: Stoker) -> None:
    file = stoker.file("jobs.txt", f"echo a >> ran\n{HOLD}\n")
    process = start_and_hold(stoker, file, "--gpus", "0")
    stoker.until(lambda: [row.state for row in stoker.rows()] == ["done", "running"])
    kill_and_wait(stoker, process)
    os.truncate(stoker.folders()[0] / "journal", 0)
    stoker.file("go", "")

    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert "Traceback" not in ended.err
    assert (ended.code, stoker.read("ran")) == (0, ["a", "hold"])


def test_what_outlived_stoker_and_supervisor_is_ended_before_it_runs_again(stoker: Stoker) -> None:
    line = "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ran >> ran\n"
    file = stoker.file("jobs.txt", line)
    process = stoker.start("run", file, "--gpus", "0")
    stoker.until(lambda: stoker.read("pids"), "it runs")
    supervisor, cleaner = stoker.supervisor(process), stoker.cleaner(process)
    os.kill(supervisor, signal.SIGSTOP)  # so that it cannot clean up
    os.kill(cleaner, signal.SIGSTOP)
    process.send_signal(signal.SIGKILL)
    os.kill(cleaner, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    process.wait(timeout=PATIENCE_S)  # its output is still open: the survivor has it
    (survivor,) = map(int, stoker.read("pids"))
    assert stoker.is_alive(survivor)

    resumed = stoker.start("run", file, "--gpus", "1", "--resume")
    stoker.until(lambda: len(stoker.read("pids")) == 2, "it runs again")
    assert not stoker.is_alive(survivor)
    (stoker.work / "go").touch()

    assert stoker.end(resumed).code == 0
    assert stoker.read("ran") == ["ran"]
