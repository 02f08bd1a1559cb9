"""Warm starts as people ask for them: on the command line, in sweep files, from Python."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue

PYTHON = shlex.quote(sys.executable)
# Tells whether csv was there at the first statement; a fork also finds what its import left behind.
PROBE = """
import sys
print("warm" if "csv" in sys.modules else "cold", *sys.argv[1:])
import csv
"""


@pytest.fixture
def warm_queue(queue: Queue) -> Queue:
    (queue.work / "train.py").write_text(PROBE)
    return queue


def workers(queue: Queue) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(queue.ok("status", "--json"))["warm"]
    return found


def test_a_job_finds_its_modules_imported(warm_queue: Queue) -> None:
    warm_queue.add("--warm", "csv", sys.executable, "train.py", "an argument")
    warm_queue.ok("wait")

    assert warm_queue.ok("log", "1") == "warm an argument\n"
    assert warm_queue.show(1)["options"]["warm"] == ["csv"]
    assert "cold" not in warm_queue.ok("why", "1")


def test_a_line_with_quotes_starts_warm_too(warm_queue: Queue) -> None:
    warm_queue.add("--warm", "csv", f"{PYTHON} -u train.py 'two words' \"and more\"")
    warm_queue.ok("wait")

    assert warm_queue.ok("log", "1") == "warm two words and more\n"


def test_status_shows_the_worker_and_its_memory(warm_queue: Queue) -> None:
    warm_queue.add("--warm", "csv,json", sys.executable, "train.py")
    warm_queue.ok("wait")

    (worker,) = workers(warm_queue)
    assert worker["modules"] == ["csv", "json"]
    assert 2**20 < worker["mem_bytes"] < 2**30
    assert f"csv, json (pid {worker['pid']}, " in warm_queue.ok("status")


def test_the_worker_is_known_to_the_next_daemon(warm_queue: Queue) -> None:
    os.mkfifo(warm_queue.work / "go")
    (warm_queue.work / "wait.py").write_text("import sys\nsys.exit(int(open('go').read()))\n")
    warm_queue.add("--warm", "csv", sys.executable, "wait.py")
    warm_queue.until_running(1)
    (before,) = workers(warm_queue)
    warm_queue.kill_daemon()
    warm_queue.start()

    assert [worker["pid"] for worker in workers(warm_queue)] == [before["pid"]]
    (warm_queue.work / "go").write_text("4")
    assert warm_queue("wait", "--all").code == 1
    assert warm_queue.show(1)["reason"] == "exit 4"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["true && true"], "it needs a shell: only plain python commands start warm"),
        (["X=1 python x.py"], "it needs a shell: only plain python commands start warm"),
        (["env", "true"], "env is not python: only python commands start warm"),
        ([sys.executable, "--version"], "python --version does not start warm"),
    ],
)
def test_what_cannot_start_warm_says_why(queue: Queue, words: list[str], reason: str) -> None:
    queue.add("--hold", "--warm", "csv", *words)
    assert f"; it starts cold: {reason}" in queue.ok("why", "1")
    queue.ok("release", "1")
    queue("wait")
    assert f"; it started cold: {reason}" in queue.ok("why", "1")


def test_a_module_that_is_missing_is_told_once_and_jobs_run_cold(warm_queue: Queue) -> None:
    for _ in range(3):
        warm_queue.add("--warm", "csv,no_such_module", sys.executable, "train.py")
    warm_queue.ok("wait")

    reason = "import no_such_module: ModuleNotFoundError: No module named 'no_such_module'"
    assert warm_queue.ok("log", "2") == "cold\n"
    assert f"; it started cold: {reason}" in warm_queue.ok("why", "2")
    assert warm_queue.ok("status").count(reason) == 1


def test_a_worker_that_is_killed_whenever_it_imports_is_told_and_its_job_runs_cold(
    queue: Queue,
) -> None:
    for name in ("pids", "gate"):
        os.mkfifo(queue.work / name)
    text = "import os\nopen('pids', 'w').write(str(os.getpid()))\nopen('gate').read()\n"
    (queue.work / "slow.py").write_text(text)
    (queue.work / "train.py").write_text("print('ran')\n")
    queue.add("--warm", "slow", sys.executable, "train.py")
    for _ in range(3):
        os.kill(int((queue.work / "pids").read_text()), signal.SIGKILL)
    queue.ok("wait")

    assert queue.ok("log", "1") == "ran\n"
    reason = "its warm worker was killed while it imported"
    assert queue.ok("why", "1").endswith(f"; it started cold: {reason}\n")


def test_a_job_of_a_worker_that_imports_can_be_killed(queue: Queue) -> None:
    os.mkfifo(queue.work / "gate")
    (queue.work / "slow.py").write_text("open('gate').read()\n")
    (queue.work / "train.py").write_text("print('never')\n")
    queue.add("--warm", "slow", sys.executable, "train.py")
    queue.until(lambda: queue.states()[1] == "starting")
    queue.ok("kill", "1")

    assert queue("wait", "--all").code == 1
    assert queue.states() == {1: "killed"}
    with open(queue.work / "gate", "w") as admission:
        admission.write("go")


@pytest.mark.parametrize("words", [["python", "train.py"], ["python"], ["", "python", "train.py"]])
def test_modules_are_named_before_the_command(queue: Queue, words: list[str]) -> None:
    ended = queue("add", "--warm", *words)
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_a_name_that_is_none_is_refused(queue: Queue) -> None:
    ended = queue("add", "--warm", "torch;rm", "python", "x.py")
    assert ended.code == 2
    assert "'torch;rm' is not the name of a module" in ended.err


def test_a_sweep_learns_what_its_runs_import(warm_queue: Queue) -> None:
    text = f"command: {PYTHON} train.py {{lr}}\nparameters: {{lr: [1, 2, 3]}}\nwarm: auto\n"
    (warm_queue.work / "sweep.yaml").write_text(text)
    warm_queue.ok("sweep", "-f", "sweep.yaml", "--name", "first", "lr=0")
    warm_queue.ok("wait")
    warm_queue.ok("sweep", "-f", "sweep.yaml")
    warm_queue.ok("wait")

    logs = [warm_queue.ok("log", str(job)).split() for job in range(1, 5)]
    assert logs == [["cold", "0"], ["warm", "1"], ["warm", "2"], ["warm", "3"]]


def test_the_runs_of_a_sweep_know_their_folders_and_share_one_worker(warm_queue: Queue) -> None:
    shown = "os.environ['STOKER_RUN_DIR'], os.environ['WANDB_DIR'], 'csv' in sys.modules"
    (warm_queue.work / "train.py").write_text(f"import os, sys\nprint({shown})\n")
    command = f"{PYTHON} train.py {{lr}}"
    warm_queue.ok("sweep", "--name", "train", "--warm", "csv", command, "lr=1,2,3")
    warm_queue.ok("wait")

    folders = [path.parent for path in (warm_queue.work / "results").glob("*/*/log.txt")]
    assert len(folders) == 3
    for folder in folders:
        assert (folder / "log.txt").read_text() == f"{folder} {folder} True\n"
    assert len(workers(warm_queue)) == 1


def test_a_sweep_file_with_a_wrong_warm_names_the_line(queue: Queue) -> None:
    (queue.work / "s.yaml").write_text(
        "command: python t.py {lr}\nparameters: {lr: [1]}\nwarm: {a: 1}\n"
    )
    ended = queue("sweep", "-f", "s.yaml")
    assert (ended.code, ended.err) == (
        2,
        "stoker: s.yaml:3: warm must be auto, never, or a list of modules: [torch, numpy]\n",
    )


def test_lines_of_a_run_start_warm(stoker: Stoker) -> None:
    (stoker.work / "train.py").write_text(PROBE)
    ended = stoker.run("--gpus", "0,1,2,3", "--warm", "csv", lines=f"{PYTHON} train.py a\n" * 6)
    assert (ended.code, ended.out) == (0, "warm a\n" * 6)


def test_a_run_tells_once_what_starts_cold(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--warm", "csv", lines="echo a\necho b\n")
    assert (ended.code, ended.out) == (0, "a\nb\n")
    assert ended.err.count("starts cold") == 1


def test_nothing_is_left_of_a_run_that_is_killed(stoker: Stoker) -> None:
    (stoker.work / "train.py").write_text("import time\nopen('up', 'w')\ntime.sleep(600)\n")
    jobs = stoker.file("jobs", f"{PYTHON} train.py\n")
    process = stoker.start("run", "--gpus", "0", "--warm", "csv", jobs)
    stoker.until(lambda: (stoker.work / "up").exists())
    process.kill()
    process.wait()
    stoker.until(lambda: not stoker.processes())


def test_a_sweep_of_a_plain_python_command_starts_warm_by_default(warm_queue: Queue) -> None:
    ended = warm_queue("sweep", f"{PYTHON} train.py {{lr}}", "lr=1,2", "--name", "usual")
    assert "runs start warm" in ended.err
    assert "--warm never" in ended.err
    again = warm_queue("sweep", f"{PYTHON} train.py {{lr}}", "lr=1,2", "--name", "usual")
    assert "nothing to run" in again.out
    assert "runs start warm" not in again.err


@pytest.mark.parametrize("words", [["--warm", "never", f"{PYTHON} train.py {{lr}}"], ["echo {lr}"]])
def test_a_sweep_that_turns_warm_starts_off_or_is_no_python_says_nothing_of_them(
    warm_queue: Queue, words: list[str]
) -> None:
    ended = warm_queue("sweep", *words, "lr=1,2", "--name", "cold")
    assert (ended.code, ended.err) == (0, "")
    warm_queue.ok("wait")
    assert workers(warm_queue) == []


def test_the_setting_warm_never_keeps_the_runs_of_sweeps_cold(warm_queue: Queue) -> None:
    warm_queue.ok("config", "warm", "never")
    warm_queue.ok("sweep", f"{PYTHON} train.py {{lr}}", "lr=1,2", "--name", "cold")
    warm_queue.ok("wait")
    assert workers(warm_queue) == []
    wrong = warm_queue("config", "warm", "often")
    assert wrong.code == 2
    assert "auto or never" in wrong.err
