"""What the user of `stoker top` has selected, sorted, filtered and opened. Has no terminal and no daemon."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from stoker.cli.top.feed import Snapshot
from stoker.core.lifecycle import State, is_final, is_live
from stoker.wire import Job


class Sort(enum.Enum):
    """The order of the jobs."""

    QUEUE = "queue order"
    LONGEST = "longest first"
    GPU = "by GPU"
    NAME = "by name"
    PROBLEMS = "problems first"


class Mode(enum.Enum):
    """What the keys act on."""

    JOBS = enum.auto()
    LOG = enum.auto()
    FILTER = enum.auto()
    CONFIRM_KILL = enum.auto()
    HELP = enum.auto()


_TROUBLED = (State.FAILED, State.LOST, State.KILLED, State.SKIPPED)


@dataclass
class View:
    """The state of the screen."""

    snapshot: Snapshot | None = None
    problem: str = ""
    message: str = ""
    selected: int | None = None
    filter: str = ""
    sort: Sort = Sort.QUEUE
    mode: Mode = Mode.JOBS
    first: int = 0  # row of the table at its top
    rows_shown: int = 1
    log_back: int = 0  # lines of the log below the screen
    columns: int = 80
    _order: list[Job] = field(default_factory=list)

    def take(self, snapshot: Snapshot) -> None:
        """Show a newer snapshot. The selected job stays selected, wherever it is now."""
        self.snapshot, self.problem = snapshot, ""
        self._arrange()

    def _arrange(self) -> None:
        jobs = self.snapshot.jobs if self.snapshot else []
        self._order = sorted(jobs, key=_KEYS[self.sort]) if self.sort in _KEYS else list(jobs)
        if self.job() is None:
            self.selected = self._order[0].id if self._order else None
        self._show_selected()

    def jobs(self) -> list[Job]:
        """Return the jobs in the order of the screen."""
        return self._order

    def job(self) -> Job | None:
        """Return the selected job."""
        return next((job for job in self._order if job.id == self.selected), None)

    def move(self, by: int) -> None:
        """Select the job so many rows below; in the log, scroll."""
        if self.mode is Mode.LOG:
            self.log_back = max(0, self.log_back - by)
        elif self._order:
            ids = [job.id for job in self._order]
            at = ids.index(self.selected) if self.selected in ids else 0
            self.select(ids[min(len(ids) - 1, max(0, at + by))])

    def select(self, job: int) -> None:
        """Select a job, if it is listed."""
        if any(each.id == job for each in self._order):
            self.selected, self.log_back = job, 0
            self._show_selected()

    def next_sort(self) -> None:
        """Change to the next order."""
        orders = list(Sort)
        self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]
        self._arrange()

    def fit(self, rows: int) -> None:
        """Take the number of rows on the screen."""
        self.rows_shown = max(1, rows)
        self._show_selected()

    def _show_selected(self) -> None:
        at = next((n for n, job in enumerate(self._order) if job.id == self.selected), 0)
        last = max(0, len(self._order) - self.rows_shown)
        self.first = min(max(self.first, at - self.rows_shown + 1), at, last)


def _duration_key(job: Job) -> float:
    if job.started_at is None:
        return math.inf
    return job.started_at if is_live(job.state) else job.started_at - (job.ended_at or 0)


_KEYS = {
    Sort.LONGEST: lambda job: (not is_live(job.state), _duration_key(job)),
    Sort.GPU: lambda job: (job.slots is None, job.slots or "", job.id),
    Sort.NAME: lambda job: (not job.name, job.project or "", job.name or "", job.id),
    Sort.PROBLEMS: lambda job: (
        job.mark is None and job.state not in _TROUBLED,
        is_final(job.state),
        -job.id,
    ),
}
