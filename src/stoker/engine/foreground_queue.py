"""The queue of a foreground run: commands in the order in which they are read."""

from __future__ import annotations

import bisect
from collections import deque
from typing import Protocol

from stoker.core.job import Attempt, Request
from stoker.core.lifecycle import State
from stoker.core.planner import make_candidate
from stoker.engine.queue import MemoryQueue, QueueEntry
from stoker.store.jobs import SHARERS, Jobs, Known

_MAX_READ_AT_ONCE = 1000
_NUL_REASON = "could not start, it holds a NUL byte (separate multi-line commands with --null)"


class CommandSource(Protocol):
    """Where new commands come from."""

    @property
    def ended(self) -> bool:
        """Whether no more can come."""

    def take(self) -> bytes | None:
        """The next command, if one has been read."""

    def is_drained(self) -> bool:
        """Whether a source that never ends holds nothing more of what was sent."""


class ForegroundQueue(MemoryQueue):
    """Commands of one source. A command that runs again keeps its position before all newer ones."""

    def __init__(
        self, source: CommandSource, jobs: Jobs, request: Request, *, resume: bool
    ) -> None:
        super().__init__(jobs, resume=resume)
        self._source = source
        self._request = request
        self._needs_candidates = request.share is not None or request.gpu_mem is not None
        self.commands: dict[int, bytes] = {}  # by the number of their candidate
        self._fresh: deque[QueueEntry] = deque()
        self._again: list[QueueEntry] = []

    def __len__(self) -> int:
        return len(self._again) + len(self._fresh)

    def exhausted(self) -> bool:
        """Whether nothing waits and nothing more can come."""
        return not self and not self.rejected and self._source.ended

    def is_drained(self) -> bool:
        """Whether nothing is left of what a source that never ends has sent."""
        return self._source.is_drained()

    def peek(self, count: int, _light: int = 0, _deep: int = 0, /) -> list[QueueEntry]:
        """The next entries, up to `count`; at least SHARERS if the commands share GPUs."""
        read = 0
        if self._request.share is not None:
            count = max(count, SHARERS)
        while len(self) < count and read < _MAX_READ_AT_ONCE:
            command = self._source.take()
            if command is None:
                break
            self._admit(command)
            read += 1
        self.unfinished = read == _MAX_READ_AT_ONCE
        first = self._again[:count]
        return first + [self._fresh[i] for i in range(min(count - len(first), len(self._fresh)))]

    def claim(self, entry: QueueEntry, slots: str) -> Attempt:
        """Take an entry out and record the intent to start it."""
        if self._again and entry is self._again[0]:
            self._again.pop(0)
        elif self._fresh and entry is self._fresh[0]:
            self._fresh.popleft()
        else:  # a command that shares can overtake one that does not fit
            (self._again if entry in self._again else self._fresh).remove(entry)
        return self.record(entry, slots)

    def put_back(self, entry: QueueEntry, known: Known) -> None:
        """Let a recorded command wait for another attempt, at its old position."""
        entry.known = known
        keys = [waiting.known.id for waiting in self._again if waiting.known]
        self._again.insert(bisect.bisect(keys, known.id), entry)

    def _admit(self, command: bytes) -> None:
        known = self._recall(command)
        if known is not None and known.state is State.DONE:
            return
        entry = QueueEntry(command, self._request, known)
        if self._needs_candidates:
            number = len(self.commands) + 1
            self.commands[number] = command
            entry.candidate = make_candidate(number, self._request)
        if b"\0" in command:
            self.rejected.append((entry, _NUL_REASON))
        else:
            self._fresh.append(entry)
