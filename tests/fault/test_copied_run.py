"""A home is copied while `stoker run` works in it: `--resume` in the copy leaves the original alone."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from fault.ledger import CLEAN

if TYPE_CHECKING:
    from conftest import Stoker
    from fault.conftest import Tell

LINES = "echo $$ >> pids; until [ -e go ]; do sleep 0.02; done\n"


def test_a_resumed_copy_of_a_run_leaves_the_original_alone(stoker: Stoker, tell: Tell) -> None:
    file = stoker.file("jobs.txt", LINES)
    original = stoker.start("run", file, "--gpus", "0")
    (pid,) = stoker.until(lambda: stoker.read("pids"), "the command runs")
    copy = stoker.home.with_name("copy")
    subprocess.run(["cp", "-a", stoker.home, copy], check=True)

    resumed = stoker.start("run", file, "--gpus", "1", "--resume", env={"STOKER_HOME": str(copy)})
    stoker.until(lambda: len(stoker.read("pids")) == 2, "the copy runs the command, too")

    tell("copied home", 1, CLEAN)
    assert stoker.is_alive(int(pid))
    stoker.file("go", "")
    assert stoker.end(original).code == 0
    ended = stoker.end(resumed)
    assert ended.code == 0
    assert "this run is a copy: 1 command that was running in the original runs again" in ended.err
    (lost, done) = stoker.rows(copy / "runs" / "1")
    assert (lost.outcome, done.outcome) == ("lost", "done")
    assert lost.reason is not None
    assert "belongs to the original" in lost.reason
