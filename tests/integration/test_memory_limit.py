"""Jobs and commands with --mem, from the command line to real processes that allocate."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue

# A data loader: two workers hold the memory, of which the first process knows nothing.
LOADER = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        block = bytearray(int(sys.argv[1]) << 20)
        os.write(1, b"loaded\\n")
        time.sleep(float(sys.argv[2]))
        os._exit(0)
for _ in range(2):
    os.wait()
"""
OVER = re.compile(r"used (\d+(\.\d)?) MiB of RAM, more than its --mem 120 MiB")


def test_a_job_over_its_ram_is_ended_and_says_so_everywhere(queue: Queue) -> None:
    (queue.work / "loader.py").write_text(LOADER)
    big = queue.add("--mem", "120M", "-N", "big", sys.executable, "loader.py", "100", "600")
    small = queue.add("--mem", "120M", sys.executable, "loader.py", "20", "0")

    ended = queue("wait", str(big), str(small))
    assert ended.code == 1
    assert queue.states() == {big: "failed", small: "done"}
    job = queue.show(big)
    reason = job["reason"]
    assert OVER.fullmatch(reason)
    assert (job["failure"], job["signal"], job["mem_bytes"]) == ("over_mem", 9, 120 << 20)
    assert f"job {big} is failed: {reason}\n" == queue.ok("why", "big")
    assert "set aside  120 MiB of RAM at most" in queue.ok("show", "big")


def test_a_limit_is_kept_while_no_daemon_runs(queue: Queue) -> None:
    (queue.work / "loader.py").write_text(LOADER)
    os.mkfifo(queue.work / "gate")
    line = f"read x < gate; exec {sys.executable} loader.py 100 600"
    job = queue.add("--mem", "120M", line)
    pid = queue.until_running(job)
    queue.kill_daemon()
    (queue.work / "gate").write_text("go\n")
    queue.until(lambda: not queue.stoker.is_alive(pid), "the job is killed")

    queue("wait", str(job))
    assert OVER.fullmatch(queue.show(job)["reason"])


def test_a_command_of_a_run_over_its_ram_is_ended_and_the_next_one_runs(stoker: Stoker) -> None:
    (stoker.work / "loader.py").write_text(LOADER)
    command = f"{sys.executable} loader.py 100 600"
    ended = stoker.run("--gpus", "0", "--mem", "120M", lines=f"{command}\necho next\n")

    assert ended.code == 1
    assert ended.out.splitlines()[-1] == "next"
    assert OVER.search(ended.err)


def test_what_no_machine_has_is_refused_before_anything_runs(stoker: Stoker) -> None:
    for words, message in (
        (("--mem", "900T"), "the job asks for 921600 GiB of RAM, and this machine has "),
        (("--cpus", "60000"), "the job asks for 60000 CPUs, and this machine has "),
        (("--cpus", "0"), "--cpus 0: write 1 or more"),
    ):
        ended = stoker.run("--gpus", "0", *words, lines="touch ran\n")
        assert ended.code == 2
        assert message in ended.err
        assert ended.err.count("\n") == 1
    assert not (stoker.work / "ran").exists()


def test_commands_of_a_run_wait_for_cpus(stoker: Stoker) -> None:
    cpus = str(len(os.sched_getaffinity(0)))
    line = "mkdir alone && sleep 0.2; rmdir alone\n"
    ended = stoker.run("--gpus", "0,1,2", "--cpus", cpus, lines=line * 3)

    assert (ended.code, ended.err.count("cannot create")) == (0, 0)
