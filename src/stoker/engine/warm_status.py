"""Status of warm starts: the warm workers, and why jobs started cold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from stoker.core.job import Attempt
from stoker.executors.contract import Cold, Cooled, Warmed

_REASONS = 1000


class WarmStatus:
    """Keeps the warm workers of executors; publishes each reason for a cold start once."""

    def __init__(self, tell_once: Callable[[str], None]) -> None:
        self.workers: dict[int, list[str]] = {}
        self._reasons: OrderedDict[int, str] = OrderedDict()
        self._tell_once = tell_once

    def apply(self, report: Warmed | Cooled | Cold) -> None:
        """Apply a report about warm workers."""
        match report:
            case Warmed():
                self.workers[report.pid] = report.modules
            case Cooled():
                self.workers.pop(report.pid, None)
            case Cold():
                self.on_cold(Attempt.from_key(report.key).job, report.reason)

    def on_cold(self, job: int, reason: str) -> None:
        """Record that a job starts cold although it was to start warm."""
        self._reasons[job] = reason
        if len(self._reasons) > _REASONS:
            self._reasons.popitem(last=False)
        self._tell_once(f"a job starts cold although it asks for a warm start: {reason}")

    def why_cold(self, job: int) -> str | None:
        """Why a job started cold; None if it did not, or long ago."""
        return self._reasons.get(job)

    def forget(self) -> None:
        """Forget all workers; the executor reports them again."""
        self.workers.clear()


def mem_bytes_of(pid: int) -> int | None:
    """The proportional memory (PSS) of a process; None if it cannot be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None
