"""The queue of a private engine: jobs as they are submitted, each with surroundings of its own."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from stoker.core.job import Attempt, Ending, Request
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate
from stoker.engine.foreground_queue import QueueEntry
from stoker.store.jobs import SHARERS, Jobs, Known
from stoker.task.messages import Submit

_Kind = tuple[int, int, float | None, str | None]


class Submitted(QueueEntry):
    """A job that waits for its first or its next attempt."""

    job: Submit | None = None

    @property
    def number(self) -> int:
        """What the client calls it."""
        assert self.candidate is not None
        return self.candidate.id


class SubmittedQueue:
    """By priority, then in the order of submission; what goes round again keeps its place.

    With `resume`, `passed` is told of jobs that the record knows as done. All need `gpu_mem` bytes of
    their GPU, if that is said.
    """

    def __init__(
        self,
        jobs: Jobs,
        passed: Callable[[int], None],
        *,
        resume: bool,
        gpu_mem: int | None = None,
    ) -> None:
        self._jobs = jobs
        self._gpu_mem = gpu_mem
        self._passed = passed
        self._resume = resume
        self._lines: dict[_Kind, deque[Submitted]] = {}
        self._waiting: dict[int, Submitted] = {}
        self.closed = False
        self.already_done = 0
        self.unfinished = False
        self.rejected: deque[tuple[QueueEntry, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, job: Submit) -> None:
        """Let a job wait."""
        known = self._jobs.read_again(job.command) if self._resume else None
        if known is not None and known.state is State.DONE:
            self.already_done += 1
            self._passed(job.number)
            return
        request = Request(
            slots=job.slots,
            priority=job.priority,
            timeout_s=job.timeout_s,
            retries=job.retries,
            share=job.share,
            gpu_mem=self._gpu_mem,
        )
        candidate = Candidate(
            job.number,
            job.slots,
            job.priority,
            timeout_s=job.timeout_s,
            share=job.share,
            gpu_mem=self._gpu_mem,
        )
        entry = Submitted(job.command, request, known, candidate=candidate, job=job)
        self._waiting[job.number] = entry
        self._line_of(entry).append(entry)

    def job(self, number: int) -> Submit:
        """A job that waits, as it was submitted."""
        job = self._waiting[number].job
        assert job is not None
        return job

    def cancel(self, number: int) -> bool:
        """Take out a job; False if it does not wait."""
        entry = self._waiting.pop(number, None)
        if entry is None:
            return False
        self._tidy(self._line_of(entry))
        return True

    def cancel_all(self) -> list[int]:
        """Take out all jobs; their numbers."""
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

        More of those that share: many of them may find room on one GPU.
        """
        found: list[Submitted] = []
        for (_priority, slots, _timeout_s, share), line in self._lines.items():
            waiting = (entry for entry in line if entry.number in self._waiting)
            most = count if share is None else max(count, SHARERS)
            found += itertools.islice(waiting, most if slots else light)
        if len(self._lines) > 1:
            found.sort(key=_order)
        return [*found]

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""
        assert isinstance(entry, Submitted)
        del self._waiting[entry.number]
        self._tidy(self._line_of(entry))
        return self.record(entry, slots)

    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""
        entry.tries += 1
        if entry.known is not None:
            return self._jobs.reclaim(entry.known, slots)
        return self._jobs.add_claimed(entry.command, entry.request, slots)

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded job wait for another attempt, at its old place."""
        assert isinstance(entry, Submitted)
        entry.known = known
        line = self._line_of(entry)
        self._waiting[entry.number] = entry
        place = next((i for i, other in enumerate(line) if other.number >= entry.number), len(line))
        if place == len(line) or line[place] is not entry:  # it may only have been marked
            line.insert(place, entry)

    def back_off(self, entry: QueueEntry, job: int) -> None:
        """Nothing asks for that here."""

    def on_over(self, job: int) -> None:
        """Nothing waits for another here."""

    def on_preempted(self, job: int, *, behind: bool) -> None:
        """Nothing is preempted here."""

    def note_ending(self, job: int, ending: Ending, reason: str) -> None:
        """Nobody takes these jobs over."""

    def wake(self) -> None:
        """Nothing waits for a time here."""

    def due_s(self) -> float | None:
        """Nothing waits for a time here."""
        return None

    def _line_of(self, entry: Submitted) -> deque[Submitted]:
        request = entry.request
        kind = (request.priority, request.slots, request.timeout_s, request.share)
        return self._lines.setdefault(kind, deque())

    def _tidy(self, line: deque[Submitted]) -> None:
        """Drop from the head of a line what waits no more: in the middle it is only marked so."""
        while line and line[0].number not in self._waiting:
            line.popleft()


def _order(entry: Submitted) -> tuple[int, int, int]:
    assert entry.candidate is not None
    return entry.candidate.order
