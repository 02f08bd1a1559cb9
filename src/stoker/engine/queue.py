"""Base classes of the queues that an engine takes its jobs from."""

# ruff: noqa: B027 - the empty methods are hooks
from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from stoker.core.job import Attempt, Ending, Request
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate
from stoker.store.jobs import Jobs, Known

if TYPE_CHECKING:
    from stoker.store.queue_jobs import Facts


class QueueEntry(msgspec.Struct):
    """A job that waits for its first or its next attempt."""

    command: bytes
    request: Request
    known: Known | None = None  # None until the job is recorded
    tries: int = 0
    facts: Facts | None = None
    suspended: str | None = None  # the key of a suspended attempt that goes on instead of a new one
    candidate: Candidate | None = None  # None for a command that the planner knows by its position


class Queue(ABC):
    """Waiting jobs in the order in which they start.

    The methods that do nothing here are hooks: a queue overrides those that concern it.
    """

    def __init__(self) -> None:
        self.rejected: deque[tuple[QueueEntry, str]] = deque()  # can never run, with the reason
        self.unfinished = False  # the last `peek` stopped early: more can be found at once
        self.already_done = 0  # skipped because an earlier run has done them

    @abstractmethod
    def __len__(self) -> int:
        """How many jobs wait."""

    @abstractmethod
    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more can come."""

    @abstractmethod
    def is_drained(self) -> bool:
        """Whether everything that was sent so far has been taken, although more can come."""

    @abstractmethod
    def peek(self, count: int, light: int, deep: int = 0, /) -> list[QueueEntry]:
        """The next entries in queue order, up to `count` of each kind; they stay in the queue.

        Returns up to `light` entries that need no GPU, and `deep` more of those that need several.
        """

    @abstractmethod
    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""

    @abstractmethod
    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded job wait for another attempt, at its old position."""

    def back_off(self, entry: QueueEntry, job: int) -> None:
        """Delay the next attempt of a failed job for as long as the job asks."""

    def delay(self, job: int, pause_s: float) -> None:
        """Delay the next attempt of a job that could not be started."""

    def on_over(self, job: int) -> None:
        """Handle the end of a job."""

    def on_preempted(self, job: int, *, behind: bool) -> None:
        """Handle an attempt that does not count; `behind` lets equal jobs start first."""

    def note_ending(self, job: int, ending: Ending, reason: str) -> None:
        """Record why a running job is about to be ended."""

    def wake(self) -> None:
        """Release jobs whose delay is over."""

    def due_s(self) -> float | None:
        """Seconds until a delayed job can start; None if none is delayed."""
        return None


class MemoryQueue(Queue):
    """Base of queues in memory: a job is recorded when it is claimed for the first time.

    With `resume`, commands that the record knows as done are skipped and counted.
    """

    def __init__(self, jobs: Jobs, *, resume: bool) -> None:
        super().__init__()
        self._jobs = jobs
        self._resume = resume

    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""
        entry.tries += 1
        if entry.known is not None:
            return self._jobs.reclaim(entry.known, slots)
        return self._jobs.add_claimed(entry.command, entry.request, slots)

    def _recall(self, command: bytes) -> Known | None:
        """What an earlier run has recorded of a command; counts it if it is done."""
        known = self._jobs.read_again(command) if self._resume else None
        if known is not None and known.state is State.DONE:
            self.already_done += 1
        return known
