"""Jobs that waste a GPU, seen by the real program: real processes, files and driver calls."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

TRAIN = f"{sys.executable} -m stoker.testing.train --mem 2G --steps 4000 --seconds 2000"


def test_diverged_stalled_and_idle_jobs_are_marked_or_ended_as_told(idle_queue: Queue) -> None:
    queue = idle_queue
    queue.start("0,1,2,3")
    queue.ok("config", "mark.idle", "2s")
    queue.ok("config", "on-mark", f'echo "$STOKER_JOB_ID $STOKER_MARK" >> {queue.work}/marks')
    hung = f"{sys.executable} -m stoker.testing.train --mem 2G --sm 100 --steps 1 --seconds 2000"
    stalled = queue.add("--stall", "3s", f"echo begun; {hung}")
    words = (f"{TRAIN} --sm 80 --nan-at {{nan}}", "nan=2,4000", "--name", "s", "--warm", "never")
    queue.ok("sweep", *words, "--share", "never", "--on-nan", "stop")
    diverged, good = stalled + 1, stalled + 2
    idle = queue.add("-N", "lazy", f"{TRAIN} --sm 0")

    ended = {stalled: "failed", diverged: "failed", good: "running", idle: "running"}
    queue.until(lambda: queue.states() == ended and queue.ls()[idle]["mark"])

    assert queue.show(diverged)["failure"] == "diverged"
    assert queue.show(diverged)["reason"] == ("diverged: loss is nan since step 2 (--on-nan stop)")
    assert queue.show(stalled)["failure"] == "stalled"
    assert "of GPU use (100 %) (--stall 3s)" in queue.show(stalled)["reason"]
    assert queue.ls()[good]["mark"] is None
    assert queue.ls()[idle]["mark"]["kind"] == "idle"
    assert "without computing, holds 2.0 GiB" in queue.ok("why", "lazy")
    assert "idle: " in queue.ok("show", "lazy")
    assert "running, idle" in queue.shown("ls")
    queue.until(lambda: len(queue.stoker.read("marks")) == 3)
    marks = [f"{stalled} stalled", f"{diverged} diverged", f"{idle} idle"]
    assert sorted(queue.stoker.read("marks")) == sorted(marks)

    queue.kill_daemon()
    queue.ok("config", "idle.s", "2s")  # of the sweep: it does not hold for this job
    queue.until(lambda: queue.ls()[idle]["mark"], "the next daemon finds it again")
    queue.ok("add", "-P", "s", "-N", "late", f"{TRAIN} --sm 0")
    queue.until(lambda: queue.show("late")["state"] == "failed")
    assert queue.show("late")["failure"] == "idle"
    assert "(idle.s 2s)" in queue.show("late")["reason"]
    assert queue.states()[idle] == "running"


def test_limits_of_waste_are_for_the_queue(queue: Queue) -> None:
    ended = queue("sweep", "true {x}", "x=1", "--foreground", "--slots", "0", "--stall", "5m")
    assert ended.code == 2
    assert "--on-nan, --stall and --idle are for the queue" in ended.err
