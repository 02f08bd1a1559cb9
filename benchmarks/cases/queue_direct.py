"""Lines that need no shell through the daemon, compared with other queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.queues.race import race_queues

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from benchmarks.report import Result

LINE = "true"


def run(arena: Arena) -> Result:
    """Compare all contestants."""
    return race_queues(arena, "queue_direct", LINE, LINE)
