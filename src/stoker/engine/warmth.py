"""What is known of warm starts: the workers that jobs are forked from, and why a job was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.engine.board import Running
from stoker.executors.contract import Cold, Cooled, Warmed


class Warmth:
    """Keeps what executors tell of their workers; a reason to start cold is told to people once."""

    def __init__(self, tell_once: Callable[[str], None]) -> None:
        self.workers: dict[int, list[str]] = {}
        self._tell_once = tell_once

    def apply(self, report: Warmed | Cooled | Cold, running: Mapping[str, Running]) -> None:
        """Take note."""
        match report:
            case Warmed():
                self.workers[report.pid] = report.modules
            case Cooled():
                self.workers.pop(report.pid, None)
            case Cold() if report.key in running:
                self.on_cold(running[report.key], report.reason)

    def on_cold(self, running: Running, reason: str) -> None:
        """A job is started anew although it was to be forked."""
        running.cold = reason
        self._tell_once(f"what was to start warm starts cold: {reason}")

    def forget(self) -> None:
        """The executor has begun to tell anew."""
        self.workers.clear()


def mem_bytes_of(pid: int) -> int | None:
    """What a process takes, memory that it shares counted in part; None if nobody may know."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None
