"""The queue of a foreground run: commands as they come, and those that go round again."""

from __future__ import annotations

import bisect
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from stoker.core.job import Attempt, Ending, Request
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate
from stoker.store.jobs import SHARERS, Jobs, Known

if TYPE_CHECKING:
    from stoker.store.queue_jobs import Facts

_LOOK_AT_ONCE = 1000
_NUL_REASON = "could not start, it holds a NUL byte (separate multi-line commands with --null)"


class QueueEntry(msgspec.Struct):
    """A command that waits for its first or its next attempt."""

    command: bytes
    request: Request
    known: Known | None = None
    tries: int = 0
    facts: Facts | None = None
    candidate: Candidate | None = None  # as a stored job was found; a line is one by its position


class Queue(Protocol):
    """What an engine takes its work from."""

    rejected: deque[tuple[QueueEntry, str]]
    unfinished: bool
    already_done: int

    def __len__(self) -> int: ...

    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more can come."""

    def is_drained(self) -> bool:
        """Whether nothing is left of what a source that never ends has sent."""

    def peek(self, count: int, light: int, deep: int = 0, /) -> list[QueueEntry]:
        """The next entries in queue order, up to `count` of each kind, without taking them.

        Of those that need no GPU, up to `light`; of those that need several, `deep` more.
        """

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""

    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded command wait for another attempt, at its old place."""

    def back_off(self, entry: QueueEntry, job: int) -> None:
        """Let a job that failed and is tried again wait for as long as it asks."""

    def on_over(self, job: int) -> None:
        """Take note that a job has come to its end."""

    def on_preempted(self, job: int, *, behind: bool) -> None:
        """Take note that a job waits again, which is no fault of its own; perhaps behind others."""

    def note_ending(self, job: int, ending: Ending, reason: str) -> None:
        """Record why a running job is about to be ended."""

    def wake(self) -> None:
        """Let begin what was delayed until now."""

    def due_s(self) -> float | None:
        """In how many seconds something may start that no event will tell of; None if nothing."""


class Commands(Protocol):
    """Where new commands come from."""

    @property
    def ended(self) -> bool:
        """Whether no more can come."""

    def take(self) -> bytes | None:
        """The next command, if one is at hand."""

    def is_drained(self) -> bool:
        """Whether one that never ends has nothing left of what was sent."""


class LineQueue:
    """In the order they were read; what goes round again keeps its place.

    With `resume`, what has a recorded success is passed over and counted.
    """

    def __init__(self, source: Commands, jobs: Jobs, request: Request, *, resume: bool) -> None:
        self._source = source
        self._jobs = jobs
        self._request = request
        self._resume = resume
        self._admitted = 0
        # What is learned of a kind of command is asked for by the number of a line.
        self.commands: dict[int, bytes] = {}
        self._fresh: deque[QueueEntry] = deque()
        self._again: list[QueueEntry] = []
        self.already_done = 0
        self.unfinished = False
        self.rejected: deque[tuple[QueueEntry, str]] = deque()

    def __len__(self) -> int:
        return len(self._again) + len(self._fresh)

    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more can come."""
        return not self and not self.rejected and self._source.ended

    def is_drained(self) -> bool:
        """Whether nothing is left of what a source that never ends has sent."""
        return self._source.is_drained()

    def peek(self, count: int, _light: int = 0, _deep: int = 0, /) -> list[QueueEntry]:
        """The next entries, up to `count`, without taking them; more where many may share a GPU."""
        looked_at = 0
        if self._request.share is not None:
            count = max(count, SHARERS)
        while len(self) < count and looked_at < _LOOK_AT_ONCE:
            command = self._source.take()
            if command is None:
                break
            self._admit(command)
            looked_at += 1
        self.unfinished = looked_at == _LOOK_AT_ONCE
        first = self._again[:count]
        return first + [self._fresh[i] for i in range(min(count - len(first), len(self._fresh)))]

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""
        if self._again and entry is self._again[0]:
            self._again.pop(0)
        elif self._fresh and entry is self._fresh[0]:
            self._fresh.popleft()
        else:  # those who share may pass one that finds no room
            (self._again if entry in self._again else self._fresh).remove(entry)
        return self.record(entry, slots)

    def record(self, entry: QueueEntry, slots: str) -> Attempt:
        """Record the intent of an entry's next attempt."""
        entry.tries += 1
        if entry.known is not None:
            return self._jobs.reclaim(entry.known, slots)
        return self._jobs.add_claimed(entry.command, self._request, slots)

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

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded command wait for another attempt, at its old place."""
        entry.known = known
        keys = [waiting.known.id for waiting in self._again if waiting.known]
        self._again.insert(bisect.bisect(keys, known.id), entry)

    def _admit(self, command: bytes) -> None:
        known = self._jobs.read_again(command) if self._resume else None
        if known is not None and known.state is State.DONE:
            self.already_done += 1
            return
        entry = QueueEntry(command, self._request, known)
        if self._request.share is not None or self._request.gpu_mem is not None:
            entry.candidate = self._number(command)
        if b"\0" in command:
            self.rejected.append((entry, _NUL_REASON))
        else:
            self._fresh.append(entry)

    def _number(self, command: bytes) -> Candidate:
        """Give a line a number by which plans and sums can call it from turn to turn."""
        self._admitted += 1
        self.commands[self._admitted] = command
        request = self._request
        return Candidate(
            self._admitted,
            request.slots,
            timeout_s=request.timeout_s,
            share=request.share,
            gpu_mem=request.gpu_mem,
        )
