"""What is known of warm starts: the workers that jobs are forked from, and why a job was not."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from stoker.core.job import Attempt
from stoker.executors.contract import Cold, Cooled, Warmed

_REASONS = 1000


class WarmStatus:
    """Keeps what executors tell of their workers; a reason to start cold is told to people once."""

    def __init__(self, tell_once: Callable[[str], None]) -> None:
        self.workers: dict[int, list[str]] = {}
        self._reasons: OrderedDict[int, str] = OrderedDict()
        self._tell_once = tell_once

    def apply(self, report: Warmed | Cooled | Cold) -> None:
        """Take note."""
        match report:
            case Warmed():
                self.workers[report.pid] = report.modules
            case Cooled():
                self.workers.pop(report.pid, None)
            case Cold():
                self.on_cold(Attempt.from_key(report.key).job, report.reason)

    def on_cold(self, job: int, reason: str) -> None:
        """A job is started anew although it was to be forked."""
        self._reasons[job] = reason
        if len(self._reasons) > _REASONS:
            self._reasons.popitem(last=False)
        self._tell_once(f"what was to start warm starts cold: {reason}")

    def why_cold(self, job: int) -> str | None:
        """Why a job was started anew, if it was, and not too long ago."""
        return self._reasons.get(job)

    def forget(self) -> None:
        """The executor tells anew which workers there are."""
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
