"""What a job leaves behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

LEAVE = "sleep 600 > /dev/null 2>&1 & echo $! > {}.pid"


def test_leftovers_get_a_moment_unless_they_may_linger(queue: Queue) -> None:
    def alive(name: str) -> bool:
        pid = int((queue.work / f"{name}.pid").read_text())
        return os.path.exists(f"/proc/{pid}")

    queue.add("--linger", LEAVE.format("slot_table"))
    queue.add(LEAVE.format("rest"))
    queue.ok("wait")

    queue.until(lambda: not alive("rest"), "the leftover is ended")
    assert alive("slot_table")
    assert queue.ok("add", "-q", "-g", "2", "true")
    queue.ok("wait")  # what lingers holds no GPU
