"""The queue of a private engine: jobs as the Python API submits them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from stoker.core.job import Attempt
from stoker.core.lifecycle import State
from stoker.core.planner import make_candidate
from stoker.engine.queue import MemoryQueue, QueueEntry
from stoker.store.jobs import SHARERS, Jobs, Known
from stoker.task.messages import Submit

_Kind = tuple[int, int, float | None, str | None]


class TaskEntry(QueueEntry):
    """A submitted job that waits for its first or its next attempt."""

    job: Submit | None = None

    @property
    def number(self) -> int:
        """The client's number of the job."""
        assert self.candidate is not None
        return self.candidate.id


class TaskQueue(MemoryQueue):
    """Jobs by priority, then in the order of submission; a job that runs again keeps its position.

    With `resume`, `on_skipped` is called for jobs that the record knows as done.
    """

    def __init__(self, jobs: Jobs, on_skipped: Callable[[int], None], *, resume: bool) -> None:
        super().__init__(jobs, resume=resume)
        self._on_skipped = on_skipped
        self._lines: dict[_Kind, deque[TaskEntry]] = {}
        self._waiting: dict[int, TaskEntry] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, job: Submit) -> None:
        """Let a job wait."""
        known = self._recall(job.command)
        if known is not None and known.state is State.DONE:
            self._on_skipped(job.number)
            return
        candidate = make_candidate(job.number, job.request)
        entry = TaskEntry(job.command, job.request, known, candidate=candidate, job=job)
        self._waiting[job.number] = entry
        self._line_of(entry).append(entry)

    def job(self, number: int) -> Submit:
        """A waiting job, as it was submitted."""
        job = self._waiting[number].job
        assert job is not None
        return job

    def cancel(self, number: int) -> bool:
        """Take out a job; False if it does not wait."""
        entry = self._waiting.pop(number, None)
        if entry is None:
            return False
        self._drop_gone(self._line_of(entry))
        return True

    def cancel_all(self) -> list[int]:
        """Take out all jobs. Returns their numbers."""
        numbers = list(self._waiting)
        self._waiting.clear()
        self._lines.clear()
        return numbers

    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more can come."""
        return self.closed and not self._waiting

    def is_drained(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def peek(self, count: int, light: int, _deep: int = 0, /) -> list[QueueEntry]:
        """The next entries, up to `count` of each kind, or `light` of those that need no GPU.

        Returns at least SHARERS of a kind that shares: many of them can fit on one GPU.
        """
        found: list[TaskEntry] = []
        for (_priority, slots, _timeout_s, share), line in self._lines.items():
            waiting = (entry for entry in line if entry.number in self._waiting)
            most = count if share is None else max(count, SHARERS)
            found += itertools.islice(waiting, most if slots else light)
        if len(self._lines) > 1:
            found.sort(key=_order)
        return [*found]

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""
        assert isinstance(entry, TaskEntry)
        del self._waiting[entry.number]
        self._drop_gone(self._line_of(entry))
        return self.record(entry, slots)

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded job wait for another attempt, at its old position."""
        assert isinstance(entry, TaskEntry)
        entry.known = known
        line = self._line_of(entry)
        self._waiting[entry.number] = entry
        index = next((i for i, other in enumerate(line) if other.number >= entry.number), len(line))
        if index == len(line) or line[index] is not entry:  # it can still be in the line
            line.insert(index, entry)

    def _line_of(self, entry: TaskEntry) -> deque[TaskEntry]:
        request = entry.request
        kind = (request.priority, request.slots, request.timeout_s, request.share)
        return self._lines.setdefault(kind, deque())

    def _drop_gone(self, line: deque[TaskEntry]) -> None:
        """Drop entries that wait no more from the head of a line; `peek` skips those in the middle."""
        while line and line[0].number not in self._waiting:
            line.popleft()


def _order(entry: TaskEntry) -> tuple[int, int, int]:
    assert entry.candidate is not None
    return entry.candidate.order
