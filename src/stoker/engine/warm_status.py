"""Status of warm starts: the warm workers, and why jobs started cold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from stoker.core.job import Attempt
from stoker.executors.contract import Cold, Cooled, PartlyWarm, Warmed

_REMARKS = 1000


class WarmStatus:
    """Keeps the warm workers of executors; publishes each reason for a cold start once."""

    def __init__(self, tell_once: Callable[[str], None]) -> None:
        self.workers: dict[int, Warmed] = {}
        self._remarks: OrderedDict[int, str] = OrderedDict()
        self._tell_once = tell_once

    def apply(self, report: Warmed | Cooled | Cold | PartlyWarm) -> None:
        """Apply a report about warm workers."""
        match report:
            case Warmed():
                self.workers[report.pid] = report
            case PartlyWarm():
                job = Attempt.from_key(report.key).job
                self._note(job, f"started warm, but imported a part itself: {report.reason}")
            case Cooled():
                self.workers.pop(report.pid, None)
            case Cold():
                self.on_cold(Attempt.from_key(report.key).job, report.reason)

    def on_cold(self, job: int, reason: str, *, is_asked_for: bool = True) -> None:
        """Record that a job starts cold; publish the reason if a warm start was asked for."""
        self._note(job, f"started cold: {reason}")
        if is_asked_for:
            self._tell_once(f"a job starts cold: {reason}")

    def remark_of(self, job: int) -> str | None:
        """How a job started and why, if not as usual; None also if that is long ago."""
        return self._remarks.get(job)

    def _note(self, job: int, remark: str) -> None:
        self._remarks[job] = remark
        if len(self._remarks) > _REMARKS:
            self._remarks.popitem(last=False)

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
