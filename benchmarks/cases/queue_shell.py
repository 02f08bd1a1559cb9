"""Shell lines through the daemon, compared with other queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.queues.race import race_queues

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from benchmarks.report import Result

LINE = "true && true"


def run(arena: Arena) -> Result:
    """Compare all contestants; gflow needs an option for shell lines."""
    return race_queues(arena, "queue_shell", LINE, f"sh -c '{LINE}'")
