"""With four slots or more, two supervisors start the jobs; nobody can tell from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from typing import TYPE_CHECKING

import pytest

from stoker.supervisor import process_tree

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Stoker


def supervisors(stoker: Stoker) -> list[int]:
    """The supervisors of a run: each is the child of a process that cleans up after it."""
    alike = [
        pid for pid, words in stoker.processes().items() if "supervisor.foreground_mode" in words
    ]
    seen = [process for process in map(process_tree.find_process, alike) if process is not None]
    return [process.pid for process in seen if process.parent in alike]


def all_ends(folder: Path) -> int:
    return sum(path.read_text().count("end ") for path in folder.glob("journal*"))


def forget_ends(folder: Path) -> None:
    """Let the database be as if the engine had been killed before it heard of any end."""
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as database:
        database.execute("UPDATE job SET state = 'starting' WHERE state = 'done'")
        database.commit()


def test_four_slots_have_two_supervisors_and_three_have_one(stoker: Stoker) -> None:
    for gpus, count in (("0,1,2,3", 2), ("0,1,2", 1), ("0,0,0,0", 1)):
        process = stoker.start(
            "run", "--gpus", gpus, stoker.file("jobs.txt", "touch up; sleep 600")
        )
        stoker.until(lambda: (stoker.work / "up").exists(), "it runs")

        stoker.until(lambda: len(supervisors(stoker)) == count, f"{count} run")  # noqa: B023

        process.send_signal(signal.SIGKILL)
        stoker.end(process)
        stoker.until(lambda: not supervisors(stoker), "they are gone")
        (stoker.work / "up").unlink()


def test_a_resumed_run_reads_both_journals(stoker: Stoker) -> None:
    lines = "".join(f"echo {n} >> ran\n" for n in range(8))
    process = stoker.start(
        "run", "--gpus", "0,1,2,3", stoker.file("jobs.txt", f"{lines}exec sleep 600\n")
    )
    (folder,) = stoker.until(stoker.folders, "the run has begun")
    stoker.until(lambda: all_ends(folder) == 8, "eight have ended")
    process.send_signal(signal.SIGKILL)
    stoker.end(process)
    forget_ends(folder)

    ended = stoker.run(stoker.file("jobs.txt", lines), "--gpus", "0,1,2,3", "--resume")

    assert ended.code == 0
    assert sorted(stoker.read("ran")) == [str(n) for n in range(8)]


@pytest.mark.parametrize("victim", [0, 1])
def test_either_supervisor_may_be_killed(stoker: Stoker, victim: int) -> None:
    path = stoker.file("jobs.txt", "echo $$ >> pids; exec sleep 600\n" * 4)
    process = stoker.start("run", "--gpus", "0,1,2,3", path)
    stoker.until(lambda: len(stoker.read("pids")) == 4, "all run")
    os.kill(sorted(supervisors(stoker))[victim], signal.SIGKILL)

    ended = stoker.end(process)

    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith("stoker: a supervisor process died")
    assert not any(stoker.is_alive(int(pid)) for pid in stoker.read("pids"))
