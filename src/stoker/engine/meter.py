"""Counts what has happened to attempts since the daemon started, for `GET /metrics`."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from stoker.core.exposition import Histogram
from stoker.core.failure import FailureClass
from stoker.core.lifecycle import State

if TYPE_CHECKING:
    from stoker.core.job import Outcome
    from stoker.engine.running_attempt import RunningAttempt
    from stoker.store.queue_jobs import QueueJobs

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_MIDDLE = (1.0, 10.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY)
RUN_BOUNDS = (*_MIDDLE, 3 * _DAY, 7 * _DAY)
WAIT_BOUNDS = (0.1, *_MIDDLE, 3 * _DAY)


class Meter:
    """Counters of attempts. They begin at zero with each daemon, as counters of Prometheus may."""

    def __init__(self, jobs: QueueJobs) -> None:
        self._jobs = jobs
        self.durations: dict[State, Histogram] = {}
        self.waits = Histogram(WAIT_BOUNDS)
        self.failures: Counter[FailureClass] = Counter()
        self.ended_jobs: Counter[State] = Counter()
        self.retried = 0
        self._seen: set[str] = set()  # the attempts whose wait was measured, until they end

    def on_start(self, running: RunningAttempt) -> None:
        """Measure how long a job waited for its first attempt, from the time when it could start."""
        started_us, facts = running.started_at_us, running.entry.facts
        is_first = running.attempt.number == 1 and not running.adopted
        if not is_first or running.key in self._seen or started_us is None or facts is None:
            return
        self._seen.add(running.key)
        ready_us = self._jobs.submitted_at_us(facts.submission)
        self.waits.observe((started_us - max(ready_us, facts.begin_at_us or 0)) / 1e6)

    def on_end(self, running: RunningAttempt, outcome: Outcome, *, retried: bool) -> None:
        """Count how an attempt ended."""
        self._seen.discard(running.key)
        if running.started_at_us is not None:
            ran_s = time.time() - running.started_at_us / 1e6 - running.paused_s
            self.durations.setdefault(outcome.state, Histogram(RUN_BOUNDS)).observe(ran_s)
        if running.failure is not None:
            self.failures[running.failure] += 1
        if retried:
            self.retried += 1
        else:
            self.ended_jobs[outcome.state] += 1
