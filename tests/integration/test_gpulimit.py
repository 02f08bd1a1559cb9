"""The door of gpulimit: the examples of its README, what its users know, and what was mended."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import Queue, state_of
from integration.programs import run, shell, start
from stoker.testing.state import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from conftest import Ended, Stoker

HOLD = "until [ -e go ]; do sleep 0.01; done"


def gpulimit(queue: Queue, *words: str) -> Ended:
    ended = run(queue.stoker, "gpulimit", *words)
    assert ended.err == ""
    return ended


def said(queue: Queue, *words: str) -> str:
    ended = gpulimit(queue, *words)
    assert ended.code == 0, ended
    return ended.out


def shown(queue: Queue, task: int) -> dict[str, str]:
    lines = said(queue, "show", str(task)).splitlines()
    return dict(re.split(r":\s+", line, maxsplit=1) for line in lines)


def listed(queue: Queue, *words: str) -> list[list[str]]:
    head, *lines = said(queue, "ls", *words).splitlines()
    assert head.split() == ["[ID]", "num", "status", "run_times", "pwd", "cmds"]
    return [line.split(None, 5) for line in lines]


def running_tasks(queue: Queue) -> list[str]:
    """How many tasks run on each GPU."""
    return [line.split()[-1] for line in said(queue, "status").splitlines()[4:]]


def until_status(queue: Queue, task: int, status: str) -> dict[str, str]:
    queue.until(lambda: shown(queue, task)["status"] == status, f"task {task} is {status}")
    return shown(queue, task)


def test_gpulimit_server_and_nohup_gpulimit_server(stoker: Stoker) -> None:
    server = start(stoker, "gpulimit_server")
    assert server.stdout is not None
    assert server.stderr is not None
    assert server.stdout.readline() == b"start gpulimit server.\n"
    assert server.stdout.readline() == f"listening at {stoker.home}/stoker.sock\n".encode()
    assert server.stderr.readline() == b"ready\n"

    assert f"process {server.pid}" in run(stoker, "gpulimitc", "log", "main").out
    again = run(stoker, "gpulimit-server")
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert "runs already" in again.err
    server.send_signal(signal.SIGTERM)
    assert stoker.end(server).code == 0

    shell(stoker, "nohup gpulimit_server > nohup.out 2>&1 & echo $! > pid")
    stoker.until(lambda: "ready" in stoker.read("nohup.out"), "it is up")
    assert run(stoker, "gpulimit", "ls").code == 0
    shell(stoker, "kill $(cat pid)")


def test_gpulimitc_help(stoker: Stoker) -> None:
    commands = [
        "add",
        "help",
        "ls",
        "show",
        "rm",
        "kill",
        "move",
        "set",
        "start",
        "log",
        "status",
        "debug",
        "clean",
    ]
    for words in (["help"], ["-h"], ["--help"], []):
        ended = run(stoker, "gpulimitc", *words)
        assert ended.code == 0
        assert all(f"gpulimit {command}" in ended.out for command in commands)
        assert "stoker daemon start" in ended.out
    assert "stoker kill" in run(stoker, "gpulimit", "help", "kill").out
    added = run(stoker, "gpulimit", "help", "add").out
    assert "--priority=N" in added.split("options:")[1]
    assert 'gpulimit add --logpath="./"' in added.split("examples:")[1]
    assert "SAFETY_KEEP_GPU_MEMORY" in run(stoker, "gpulimit", "help", "set").out
    for program in ("gpulimit_server", "gpulimit-server"):
        assert "stoker daemon start" in run(stoker, program, "-h").out


def test_add_ls_show_log_move_kill_start_set_status_debug_clean_rm(queue: Queue) -> None:
    queue.stoker.file("main.py", "import os, sys; print(sys.argv, os.environ['MARK'])")
    ended = shell(
        queue.stoker,
        "MARK=mine gpulimit add --priority=1 python3 main.py --lambda=12 --alpha=1",
    )
    assert (ended.code, ended.out) == (0, "add task(id:0) to queue(len: 1)\n")

    facts = until_status(queue, 0, "complete")
    assert facts == {
        "task id": "0",
        "task pid": "None",
        "priority": "1",
        "use gpu": "None",
        "run times": "1",
        "status": "complete",
        "out file": f"{queue.work.parent}/gpulimit/0.log",
        "pwd": str(queue.work),
        "cmds": "python3 main.py --lambda=12 --alpha=1",
    }
    assert said(queue, "log", "0") == "['main.py', '--lambda=12', '--alpha=1'] mine\n"
    assert queue.show(1)["priority"] == 4

    said(queue, "set", "MAX_RUNNING_TASKS", "1")  # else others join who takes no memory for long
    for task in range(1, 5):
        assert f"(id:{task})" in said(queue, "add", f"{HOLD}; echo {task}")
    queue.until(lambda: shown(queue, 2)["status"] == "running")
    assert [row[0] for row in listed(queue)] == ["1", "2", "3", "4", "0"]
    said(queue, "move", "4")
    rows = listed(queue)
    assert [row[:2] for row in rows[:4]] == [["1", "0"], ["2", "1"], ["4", "2"], ["3", "3"]]
    assert re.fullmatch(r"running\(GPU:[01]\)", rows[0][2])
    assert rows[0][4] == f"{queue.work}#"
    said(queue, "mv", "4", "1")
    assert [row[0] for row in listed(queue)][2:4] == ["3", "4"]

    assert said(queue, "kill", "1") == "[info]: kill task 1 succeed.\n"
    assert shown(queue, 1)["status"] == "killed"
    assert said(queue, "start", "1") == "[info]: start task 1 succeed.\n"
    assert said(queue, "set", "SAFETY_KEEP_GPU_MEMORY", "0.25") == (
        "[info]: seted SAFETY_KEEP_GPU_MEMORY = 0.25\n"
    )
    assert queue.ok("config", "gpulimit.safety_keep_gpu_memory") == "0.25\n"
    status = said(queue, "status").splitlines()
    assert status[0].split() == [
        "CPU",
        "load",
        "memory",
        "total",
        "memory",
        "free",
        "memory",
        "used",
    ]
    assert [line.split()[0] for line in status[4:]] == ["0", "1", "2", "3"]
    # Another task took its place; the forced start puts it beside one of the two that run.
    assert shown(queue, 1)["status"] == "running"
    queue.until(lambda: sorted(running_tasks(queue)) == ["0", "0", "1", "2"])

    said(queue, "add", "no-such-program", "word")
    (queue.work / "go").touch()
    until_status(queue, 5, "CMD_ERROR")
    assert "no-such-program" in said(queue, "debug", "5")
    until_status(queue, 1, "complete")
    assert "[info]: del task 5\n" in said(queue, "clean")
    queue.until(lambda: listed(queue) == [] or said(queue, "clean"))
    assert said(queue, "clean") == "[info]: nothing to clean\n"


def test_add_with_a_logpath_that_is_a_folder(queue: Queue) -> None:
    shell(queue.stoker, 'gpulimit add --logpath="./" echo one')
    shell(queue.stoker, "gpulimit add --logpath=mine.log --priority 1 echo two")
    until_status(queue, 1, "complete")

    assert until_status(queue, 0, "complete")["out file"] == f"{queue.work}/0.log"
    assert (queue.stoker.read("0.log"), queue.stoker.read("mine.log")) == (["one"], ["two"])
    assert said(queue, "log", "1") == "two\n"


def test_rm_kills_what_runs(queue: Queue) -> None:
    said(queue, "add", HOLD)
    pid = int(until_status(queue, 0, "running")["task pid"])

    assert said(queue, "rm", "0") == "[info]: del task 0\n"
    assert not queue.stoker.is_alive(pid)
    assert gpulimit(queue, "show", "0").out == "[error]: can not found id 0 in task queue.\n"


def test_kill_of_a_range_and_of_all(queue: Queue) -> None:
    for _ in range(5):
        said(queue, "add", HOLD)
    assert said(queue, "kill", "1-2").splitlines() == [
        "[info]: kill task 1 succeed.",
        "[info]: kill task 2 succeed.",
    ]
    assert said(queue, "kill", "all").count("succeed") == 3
    assert {row[2] for row in listed(queue)} == {"killed"}
    again = gpulimit(queue, "kill", "2")
    assert again.out == "[warning]: can not kill task 2 which have status `killed`\n"
    assert again.code == 1
    assert said(queue, "clean", "killed").count("del task") == 5


def test_start_resumes_what_is_paused_and_plans_when_bare(queue: Queue) -> None:
    said(queue, "add", HOLD)
    pid = int(until_status(queue, 0, "running")["task pid"])
    queue.ok("pause", "1")
    until_status(queue, 0, "paused")
    said(queue, "start", "0")
    assert until_status(queue, 0, "running")["task pid"] == str(pid)
    queue.until(lambda: state_of(pid) != "T", "it goes on")

    assert said(queue, "start") == "[info]: 1 tasks running, 0 waiting\n"
    assert gpulimit(queue, "start", "0").code == 1


def test_max_err_times_is_how_often_a_task_runs_in_all(queue: Queue) -> None:
    said(queue, "set", "MAX_ERR_TIMES", "3")
    said(queue, "add", "echo run; exit 3")
    queue.until(lambda: shown(queue, 0)["run times"] == "3", "it has run three times")

    assert until_status(queue, 0, "runtime_error")["run times"] == "3"
    assert "exit 3" in said(queue, "debug", "0")


def test_set_lists_the_parameters_with_their_defaults(queue: Queue) -> None:
    assert said(queue, "set").splitlines() == [
        "TIMER_POLLING_TIME = 10",
        "MAX_ERR_TIMES = 1",
        "SAFETY_KEEP_MEMORY = 0.2",
        "SAFETY_KEEP_GPU_MEMORY = 0.5",
        "MAX_RUNNING_TASKS = -1",
    ]
    assert said(queue, "set", "SAFETY_KEEP_MEMORY") == "SAFETY_KEEP_MEMORY = 0.2\n"


def test_start_forces_a_waiting_task_whatever_the_thresholds_say(queue: Queue) -> None:
    said(queue, "set", "SAFETY_KEEP_MEMORY", "1")
    said(queue, "add", HOLD)
    assert shown(queue, 0)["status"] == "waiting"
    assert "of the RAM is free; 100% must stay free" in said(queue, "debug", "0")

    assert said(queue, "start", "0") == "[info]: start task 0 succeed.\n"
    assert shown(queue, 0)["status"] == "running"
    (queue.work / "go").touch()
    until_status(queue, 0, "complete")


def test_start_tells_why_a_task_cannot_start_yet(queue: Queue) -> None:
    for gpu in ("0", "1"):
        queue.ok("gpus", "drain", gpu)
    said(queue, "add", "true")

    ended = gpulimit(queue, "start", "0")
    assert ended.code == 1
    assert ended.out.startswith("[warning]: task 0 starts next, but not yet: task 0 waits")
    assert "drained" in ended.out


def test_a_log_of_another_queue_is_not_continued(queue: Queue) -> None:
    folder = queue.work.parent / "gpulimit"
    folder.mkdir(mode=0o700)
    (folder / "0.log").write_text("of another queue\n")
    said(queue, "add", "echo mine")
    until_status(queue, 0, "complete")

    assert (folder / "0.log").read_text() == "mine\n"


@contextlib.contextmanager
def foreign_memory(stoker: Stoker, gib_on_gpu: Mapping[int, float]) -> Iterator[None]:
    """Processes that Stoker did not start, which hold memory on GPUs of 8 GiB."""
    with contextlib.ExitStack() as stack:
        for gpu, gib in gib_on_gpu.items():
            process = stack.enter_context(subprocess.Popen(["sleep", "600"]))
            stack.callback(process.kill)
            stoker.box.use(process.pid, gpu, int(gib * GIB))
        yield


@pytest.mark.parametrize("starter", ["gpulimit add", "gpulimit_server"])
def test_a_task_starts_on_a_gpu_where_others_leave_enough_memory_free(
    idle_queue: Queue, starter: str
) -> None:
    with foreign_memory(idle_queue.stoker, {0: 6, 1: 1.04, 2: 6, 3: 6}):
        if starter == "gpulimit_server":
            server = start(idle_queue.stoker, "gpulimit_server")
            assert server.stderr is not None
            assert server.stderr.readline() == b"ready\n"
        said(idle_queue, "add", HOLD)

        assert until_status(idle_queue, 0, "running")["use gpu"] == "1"
        assert idle_queue.ok("config", "gpus-with-others") == "yes\n"


def test_a_task_waits_while_others_leave_too_little_memory_free(idle_queue: Queue) -> None:
    with foreign_memory(idle_queue.stoker, dict.fromkeys(range(4), 6)):
        said(idle_queue, "add", HOLD)

        assert shown(idle_queue, 0)["status"] == "waiting"
        for told in (said(idle_queue, "debug", "0"), idle_queue.ok("why", "1")):
            assert "25% of its memory is free; 50% must stay free" in told
    until_status(idle_queue, 0, "running")


def test_a_running_daemon_uses_gpus_with_others_once_it_is_told_to(idle_queue: Queue) -> None:
    with foreign_memory(idle_queue.stoker, dict.fromkeys(range(4), 1.04)):
        idle_queue.ok("daemon", "start")
        said(idle_queue, "add", HOLD)
        assert shown(idle_queue, 0)["status"] == "waiting"
        assert "in use by" in said(idle_queue, "debug", "0")

        idle_queue.ok("config", "gpus-with-others", "yes")
        until_status(idle_queue, 0, "running")
        idle_queue.ok("config", "gpus-with-others", "no")
        native = idle_queue.add("true")
        assert "in use by" in idle_queue.ok("why", str(native))


def test_start_forces_a_task_beside_tasks_and_processes_of_others(idle_queue: Queue) -> None:
    with foreign_memory(idle_queue.stoker, {0: 1.04, 1: 6, 2: 6, 3: 6}):
        said(idle_queue, "add", HOLD)
        assert until_status(idle_queue, 0, "running")["use gpu"] == "0"
        for gpu in ("1", "2", "3"):
            idle_queue.ok("gpus", "drain", gpu)
        said(idle_queue, "set", "MAX_RUNNING_TASKS", "1")
        said(idle_queue, "add", HOLD)
        assert shown(idle_queue, 1)["status"] == "waiting"

        assert said(idle_queue, "start", "1") == "[info]: start task 1 succeed.\n"
        assert shown(idle_queue, 1)["use gpu"] == "0"
        said(idle_queue, "set", "MAX_RUNNING_TASKS", "-1")
        said(idle_queue, "add", HOLD)
        until_status(idle_queue, 2, "running")
