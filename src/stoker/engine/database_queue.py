"""The daemon's queue: the jobs that wait in the database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from stoker.core.job import Attempt, Ending, Request
from stoker.core.lifecycle import State
from stoker.core.planner import FORCED, Candidate
from stoker.engine.admission import Admission
from stoker.engine.backoffs import Backoffs
from stoker.engine.poll_driver import boot_clock_s
from stoker.engine.queue import Queue, QueueEntry
from stoker.store.jobs import Known
from stoker.store.pending import PendingJobs
from stoker.store.queue_jobs import QueueJobs

_LONGEST_BACKOFF_S = 3600.0


class DatabaseQueue(Queue):
    """Reads only the head of the queue, and keeps nothing of it in memory."""

    def __init__(
        self,
        jobs: QueueJobs,
        pending: PendingJobs,
        admission: Admission,
        on_change: Callable[[int, State], None] = lambda _job, _state: None,
        uptime_s: Callable[[], float] = boot_clock_s,
    ) -> None:
        super().__init__()
        self._jobs = jobs
        self.pending = pending
        self.admission = admission
        self._on_change = on_change
        self._uptime_s = uptime_s
        self._backoffs: Backoffs | None = None  # read in the first turn, which may write

    def __len__(self) -> int:
        return self._jobs.count(State.WAITING)

    def exhausted(self) -> bool:
        """Always False: more jobs can come at any time."""
        return False

    def is_drained(self) -> bool:
        """Whether nothing waits."""
        return not self

    def due_s(self) -> float | None:
        """Seconds until the next delayed job can start; None if none is delayed."""
        begin_us = self.pending.next_begin_us
        if begin_us is None:
            return None
        due_s = max(0.0, begin_us / 1e6 - time.time())
        next_s = self._backoffs.next_s() if self._backoffs is not None else None
        return due_s if next_s is None else min(due_s, next_s)

    def wake(self) -> None:
        """Release jobs whose delay is over."""
        if self.pending.next_begin_us is None:
            return
        now_us = time.time_ns() // 1000
        if self._backoffs is None:
            self._backoffs = Backoffs(self.pending, self._uptime_s, now_us)
        self._publish(self._backoffs.wake(now_us))
        self._publish(self.pending.wake(now_us))

    def peek(self, count: int, light: int, deep: int = 0, /) -> list[QueueEntry]:
        """The first jobs that may start, up to `count` of each class, or `light` if it needs no GPU.

        Returns `deep` more of those that need several GPUs.
        """
        if not self:
            return []
        if self.admission.is_plain and not self._jobs.has_forced:
            heads = self._jobs.heads(count, light, self.admission.allowed, deep)
            return [_entry(head) for head in heads]
        return self._peek_through_admission(count, light, deep)

    def _peek_through_admission(self, count: int, light: int, deep: int) -> list[QueueEntry]:
        forced = self._jobs.forced()
        entries = [self._forced_entry(job) for job in forced]
        room_of = self.admission.rooms()
        taken: Counter[str | None] = Counter()
        heads = self._jobs.heads(count, light, self.admission.allowed, deep, room_of)
        for head in heads:
            room = room_of(head.project)
            if head.id in forced or (room is not None and taken[head.project] >= room):
                continue
            taken[head.project] += 1
            entries.append(_entry(head))
        return entries

    def _forced_entry(self, job: int) -> QueueEntry:
        """A job that ignores limits and pauses, but not the nodes that it is restricted to."""
        head = msgspec.structs.replace(self._jobs.facts(job).candidate, priority=FORCED)
        if head.where is not None:
            head = msgspec.structs.replace(head, allowed=self.admission.placed(head.where))
        return _entry(head)

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent to start a job, and read its facts into its entry."""
        assert entry.known is not None
        facts = self._jobs.facts(entry.known.id)
        entry.command = facts.command
        entry.request = facts.request
        entry.facts = facts
        entry.tries = (facts.tries or 0) + 1
        return self.record(entry, slots)

    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""
        facts = entry.facts
        assert facts is not None
        self._jobs.claim(facts.id, slots)
        attempt = Attempt(facts.id, facts.attempt + 1)
        if entry.request.retries:
            self._jobs.count_try(attempt, entry.tries)
        return attempt

    def back_off(self, entry: QueueEntry, job: int) -> None:
        """Delay a failed job for as long as it asks, twice as long with each try."""
        backoff_s = entry.request.options.backoff_s
        if backoff_s:
            self.delay(job, min(_LONGEST_BACKOFF_S, backoff_s * 2 ** (entry.tries - 1)))

    def delay(self, job: int, pause_s: float) -> None:
        """Delay the next attempt of a job."""
        now_us = time.time_ns() // 1000
        if self._backoffs is None:
            self._backoffs = Backoffs(self.pending, self._uptime_s, now_us)
        self._backoffs.begin(job, now_us, int(pause_s * 1e6))
        self._publish(self.pending.settle(job, now_us))

    def on_preempted(self, job: int, *, behind: bool) -> None:
        """Handle an attempt that does not count; `behind` lets jobs of equal priority start first."""
        self._jobs.forgive(job)
        if behind:
            self._jobs.put_behind(job)

    def note_ending(self, job: int, ending: Ending, reason: str) -> None:
        """Record why a running job is about to be ended; on a full disk it is ended unrecorded."""
        if self._jobs.database.refusal is None:
            self._jobs.mark_ending(job, reason, ending=ending)

    def on_over(self, job: int) -> None:
        """Handle the end of a job: release or skip the jobs that depend on it."""
        self._publish(self.pending.on_over(job, time.time_ns() // 1000))

    def _publish(self, changes: list[tuple[int, State]]) -> None:
        for job, state in changes:
            self._on_change(job, state)


def _entry(head: Candidate) -> QueueEntry:
    request = Request(slots=head.slots, priority=head.priority, timeout_s=head.timeout_s)
    return QueueEntry(b"", request, Known(head.id, State.WAITING, 0), candidate=head)
