"""What jobs use and why they fail, seen by the real program over the fake driver."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

TRAIN = f"{sys.executable} -m stoker.testing.train --steps 1"


def gpus_of(queue: Queue) -> FakeGpus:
    return FakeGpus(queue.env["STOKER_FAKE_NVML"])


def test_an_attempt_keeps_what_it_used_and_frees_it_for_the_next(queue: Queue) -> None:
    first = queue.add(f"{TRAIN} --mem 3G --seconds 60")
    queue.until(lambda: queue.show(first)["attempts"][0]["gpu_use"] is not None)
    queue.ok("kill", "--grace", "0", str(first))
    queue.until(lambda: queue.show(first)["state"] == "killed")

    use = queue.show(first)["attempts"][0]["gpu_use"]
    assert use["mem_peak_bytes"] == 3 * GIB
    assert "3.0 GiB" in queue.ok("show", str(first))
    queue.add(f"{TRAIN} --mem 8G --seconds 0")
    queue.ok("wait", "@")


def test_runs_of_less_than_half_a_second_show_their_peak(queue: Queue) -> None:
    jobs = [queue.add(f"{TRAIN} --mem 1G --seconds 0.4") for _ in range(3)]
    queue.ok("wait")
    # A machine that is too busy may miss one of them.
    uses = [queue.show(job)["attempts"][0]["gpu_use"] for job in jobs]
    assert GIB in [use["mem_peak_bytes"] for use in uses if use is not None], uses


def test_a_gpu_that_is_too_small_is_reported_in_figures(queue: Queue) -> None:
    job = queue.add(f"{TRAIN} --mem 30G")
    queue.until(lambda: queue.show(job)["state"] == "failed")

    assert queue.show(job)["failure"] == "gpu_oom"
    assert queue.ok("why", str(job)) == (
        f"job {job} is failed: exit 1: GPU out of memory: wanted 30.0 GiB more, 8.0 GiB of 8.0 GiB was free;"
        " needs more than the 8.0 GiB of this GPU, and there is no larger one\n"
    )


def test_a_faulty_gpu_is_reported_and_gets_no_jobs_until_it_is_added_again(queue: Queue) -> None:
    running = queue.add("sleep 60")
    queue.until_running(running)
    other = str(1 - int(queue.show(running)["slots"]))
    gpus_of(queue).fault(int(other), 79)
    queue.until(lambda: "sick: XID 79" in queue.ok("gpus"))
    queue.ok("daemon", "restart")
    waiting = queue.add("sleep 60")

    assert "sick: XID 79, fell off the bus" in queue.ok("why", str(waiting))
    queue.ok("gpus", "add", other)
    queue.until_running(waiting)
    assert json.loads(queue.ok("show", "--json", str(waiting)))["slots"] == other
