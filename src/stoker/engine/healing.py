"""What is done about an attempt that failed: why it did, and whether and where its job is tried again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from stoker.core.failure import Again, Facts, Failure, FailureClass, Remedy, tries_again
from stoker.core.job import Ending, Outcome
from stoker.core.lifecycle import Event
from stoker.core.plan import Candidate
from stoker.engine.autopsy import Autopsy, is_full
from stoker.engine.board import Board, Running
from stoker.store.jobs import Jobs

if TYPE_CHECKING:
    from stoker.engine.mps import Mps

_CHECK_S = 2.0
_TEMPORARY = "/tmp"  # noqa: S108 - nothing is written there


class Healing:
    """Judges failures by their class.

    A full disk pauses the queue through `pause`; where there is none, in a foreground run, nothing
    starts while the disk is full.
    """

    def __init__(self, board: Board, jobs: Jobs, tell: Callable[[str], None]) -> None:
        self._board = board
        self._jobs = jobs
        self._tell = tell
        self._autopsy = Autopsy()
        self._avoided: dict[int, frozenset[str]] = {}
        self._awaits_space: str | None = None
        self._check_at = 0.0
        self.pause: Callable[[str], None] | None = None
        self.mps: Mps | None = None
        self.xid_of: Callable[[Running], int | None] = _unknown
        self.folder_of: Callable[[Running], str] = lambda _running: "."

    def examine(self, running: Running, outcome: Outcome) -> Failure | None:
        """Why an attempt failed; None if it did not."""
        if outcome.event is not Event.FAIL or outcome.status is None:
            return None
        facts = self._facts_of(running) if running.slots else Facts()
        return self._autopsy.examine(outcome.status, running.log, self._folders_of(running), facts)

    def _facts_of(self, running: Running) -> Facts:
        mps = self.mps is not None and self.mps.is_client(running)
        return Facts(
            xid=self.xid_of(running),
            mps=mps,
            neighbours=mps and self.mps is not None and self.mps.has_neighbours(running),
        )

    def wants_mps(self, running: Running) -> bool:
        """Whether an attempt asks for MPS, and its job has not gone down with neighbours there."""
        if self.mps is None or not running.entry.request.options.mps or not running.slots:
            return False
        return not self._jobs.count_failures(running.attempt.job, FailureClass.NEIGHBOUR.value)

    def decide(self, running: Running, outcome: Outcome, failure: Failure | None) -> Again:
        """Whether a job is tried again after an attempt that ended so."""
        if outcome.event is Event.PREEMPT:
            return Again.UNCOUNTED
        if outcome.event is Event.SUCCEED:
            return Again.NO
        if running.killed_because is not None and running.ending is not Ending.OVERDUE:
            return Again.NO
        job, entry = running.attempt.job, running.entry
        before = 0
        if failure is not None and failure.remedy in (Remedy.ONCE_MORE, Remedy.ELSEWHERE):
            before = self._jobs.count_failures(job, failure.kind.value)
        return tries_again(
            failure, tries=entry.tries, retries=entry.request.retries, same_before=before
        )

    def carry_out(self, running: Running, failure: Failure) -> None:
        """Do what a failure asks for beside another try."""
        job = running.attempt.job
        match failure.remedy:
            case Remedy.ELSEWHERE:
                seen = self._avoided.get(job, frozenset())
                self._avoided[job] = seen.union(running.gpus)
            case Remedy.WHEN_SPACE:
                self._stop_for_space(running)

    def forget(self, job: int) -> None:
        """A job is over."""
        self._avoided.pop(job, None)

    def direct(self, candidate: Candidate, job: int | None) -> Candidate:
        """Keep a job off GPUs on which it met a fault, as long as there is another one."""
        gpus = self._avoided.get(job) if job is not None else None
        if gpus is None:
            return candidate
        allowed = frozenset(
            place.slot.index
            for place in self._board.places
            if place.is_open
            and gpus.isdisjoint(place.slot.gpus)
            and (candidate.allowed is None or place.slot.index in candidate.allowed)
        )
        if len(allowed) < candidate.slots:
            return candidate
        return msgspec.structs.replace(candidate, allowed=allowed)

    @property
    def avoided(self) -> Mapping[int, frozenset[str]]:
        """The GPUs that jobs are kept off."""
        return self._avoided

    def lacks_space(self, now: float) -> bool:
        """Whether nothing may start because a disk is full."""
        if self._awaits_space is None:
            return False
        if now >= self._check_at:
            self._check_at = now + _CHECK_S
            if not is_full(self._awaits_space):
                self._tell(f"there is space in {self._awaits_space} again: going on")
                self._awaits_space = None
                return False
        return True

    def due_s(self) -> float | None:
        """When to look for space again, by the engine's clock; None if none lacks."""
        return None if self._awaits_space is None else self._check_at

    def _stop_for_space(self, running: Running) -> None:
        where = next(filter(is_full, self._folders_of(running)), None)
        if where is None:
            return  # there is space again already
        if self.pause is not None:
            self.pause(f"job {running.attempt.job} found the disk of {where} full")
        elif self._awaits_space is None:
            self._awaits_space = where
            self._tell(f"the disk of {where} is full: starting no more until there is space")

    def _folders_of(self, running: Running) -> list[str]:
        folders = [] if running.log is None else [os.path.dirname(running.log) or "."]
        return [*folders, self.folder_of(running), os.environ.get("TMPDIR") or _TEMPORARY]


def _unknown(_running: Running) -> int | None:
    return None
