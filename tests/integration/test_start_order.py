"""Jobs start in queue order, also where very short ones are claimed in advance."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue

SHORT, LONG = "true", "sleep 0.15"
# Look-ahead begins with the short ones; the longer ones then hold up a slot each.
MIXED = [LONG if number % 9 in (5, 8) else SHORT for number in range(120)]


def starts(queue: Queue) -> dict[int, float]:
    """When each job started."""
    return {job["id"]: job["started_at"] for job in queue.ls("-a").values()}


def test_short_jobs_among_longer_ones_start_in_the_order_they_were_added(queue: Queue) -> None:
    queue.ok("pause", "--queue")
    queue.ok("add", "--batch", "-", stdin="\n".join(MIXED))
    queue.ok("resume", "--queue")
    queue("wait")

    found = starts(queue)
    assert len(found) == len(MIXED)
    assert sorted(found, key=lambda job: (found[job], job)) == sorted(found)


def are_written(stoker: Stoker, name: str, lines: int) -> bool:
    """Whether a file has so many lines."""
    return len(stoker.read(name)) == lines


@pytest.mark.parametrize("gpus", ["0,1", "0,1,2,3"])
def test_a_long_command_is_not_overtaken_by_later_ones(stoker: Stoker, gpus: str) -> None:
    slots = len(gpus.split(","))
    os.mkfifo(stoker.work / "gate")
    for quick in range(30, 36):
        # All slots but one are busy for long; the last serves `false` and then the next long one.
        kinds = ["false"] * quick + ["long"] * (slots - 1) + ["false"] + ["long"] * 3
        lines = [
            kind if kind == "false" else f"echo {number} >> began{quick}; read line < gate"
            for number, kind in enumerate(kinds, 1)
        ]
        expected = [number for number, kind in enumerate(kinds, 1) if kind == "long"][:slots]
        run = stoker.start("run", "--gpus", gpus, stoker.file("jobs", "\n".join(lines)))
        began = f"began{quick}"
        stoker.until(partial(are_written, stoker, began, slots), "all slots are busy")
        run.kill()
        run.wait()
        assert sorted(map(int, stoker.read(began))) == expected
