"""Deadlines of running attempts: ends of time limits and of grace periods, the next one first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.engine.running_attempt import RunningAttempt

_SPARE = 64
_NEVER = float("inf")


class Deadlines:
    """A heap of deadlines. Entries whose attempt has another deadline by now are ignored."""

    def __init__(self, running: Mapping[str, RunningAttempt]) -> None:
        self._running = running
        self._heap: list[tuple[float, str]] = []

    def note(self, running: RunningAttempt) -> None:
        """Add the deadline of an attempt, if it has one."""
        if running.deadline is None:
            return
        heapq.heappush(self._heap, (running.deadline, running.key))
        if len(self._heap) > 2 * len(self._running) + _SPARE:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)

    def next(self) -> float:
        """The next deadline, by the engine's clock."""
        heap = self._heap
        while heap:
            if self._counts(heap[0]):
                return heap[0][0]
            heapq.heappop(heap)
        return _NEVER

    def take_due(self, now: float) -> Iterator[RunningAttempt]:
        """Remove and return the attempts whose deadline has passed."""
        while self.next() <= now:
            yield self._running[heapq.heappop(self._heap)[1]]

    def _counts(self, entry: tuple[float, str]) -> bool:
        running = self._running.get(entry[1])
        return running is not None and running.deadline == entry[0] and not running.is_stopped
