"""The daemon's queue: what waits in the database, in the order it is to start."""

from __future__ import annotations

from collections import deque

from stoker.core.job import Attempt, Request
from stoker.core.lifecycle import State
from stoker.engine.queue import Entry
from stoker.store.jobs import Known
from stoker.store.queued import QueuedJobs


class StoredQueue:
    """Reads the head of the queue, however long it is; nothing of it is kept in memory."""

    def __init__(self, jobs: QueuedJobs) -> None:
        self._jobs = jobs
        self.rejected: deque[tuple[Entry, str]] = deque()
        self.unfinished = False
        self.already_done = 0

    def __len__(self) -> int:
        return self._jobs.count(State.WAITING)

    def exhausted(self) -> bool:
        """A daemon's queue never is: more can come at any moment."""
        return False

    def is_drained(self) -> bool:
        """Whether nothing waits."""
        return not self

    def peek(self, count: int, light: int, /) -> list[Entry]:
        """The first jobs in queue order, up to `count` of each class, or `light` if it needs no GPU."""
        if not self:
            return []
        return [
            Entry(
                b"",
                Request(slots=head.slots, priority=head.priority, timeout_s=head.timeout_s),
                Known(head.id, State.WAITING, 0),
            )
            for head in self._jobs.heads(count, light)
        ]

    def claim(self, entry: Entry, slots: str) -> Attempt:
        """Record the intent to start a job; its entry learns all about it."""
        assert entry.known is not None
        facts = self._jobs.facts(entry.known.id)
        entry.command = facts.command
        entry.request = facts.request
        entry.facts = facts
        entry.tries = (facts.tries or 0) + 1
        return self.record(entry, slots)

    def record(self, entry: Entry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""
        facts = entry.facts
        assert facts is not None
        self._jobs.claim(facts.id, slots)
        attempt = Attempt(facts.id, facts.attempt + 1)
        if entry.request.retries:
            self._jobs.count_try(attempt, entry.tries)
        return attempt

    def put_back(self, entry: Entry, known: Known) -> None:
        """Leave it to the database, where it waits at its old place."""
