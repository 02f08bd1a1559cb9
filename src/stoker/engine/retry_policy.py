"""Policy for failed attempts: why they failed, and whether and where their jobs run again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from stoker.core.failure import (
    Again,
    Facts,
    Failure,
    FailureClass,
    MemoryOverrun,
    Remedy,
    tries_again,
)
from stoker.core.job import Outcome
from stoker.core.lifecycle import Event
from stoker.core.planner import Candidate
from stoker.engine.failure_inspection import FailureInspection, is_full
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.node_rests import NodeRests
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.machine import read_memory
from stoker.store.jobs import Jobs

if TYPE_CHECKING:
    from stoker.engine.checkpoint_places import CheckpointPlaces
    from stoker.engine.walltimes import Walltimes

_CHECK_S = 2.0
_MAX_MEMORY_SHARE = 0.9  # a job never waits for more than this share of the memory
_TEMPORARY = "/tmp"  # noqa: S108 - nothing is written there


class JobPlaces(msgspec.Struct, frozen=True):
    """Where running jobs work, and which slots they may use; None for all."""

    folder_of: Callable[[RunningAttempt], str] = lambda _running: "."
    allowed_of: Callable[[RunningAttempt], frozenset[int] | None] = lambda _running: None


class RetryPolicy:
    """Decides by the class of a failure.

    A full disk pauses the queue through `pause`. Without `pause`, in a foreground run, nothing starts
    while the disk is full.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        jobs: Jobs,
        tell: Callable[[str], None],
        gpus: GpuFeatures,
        places: JobPlaces,
        pause: Callable[[str], None] | None = None,
        checkpoints: CheckpointPlaces | None = None,
        walltimes: Walltimes | None = None,
    ) -> None:
        self._slot_table = slot_table
        self._jobs = jobs
        self._tell = tell
        self._inspection = FailureInspection()
        self._avoided: dict[int, frozenset[str]] = {}
        self._unfit: dict[
            int, dict[str, str]
        ] = {}  # by job: nodes that lack what it needs, and what
        self._needs_bytes: dict[int, int] = {}
        self._awaits_space: str | None = None
        self._check_at = 0.0
        self.pause = pause
        self.gpus = gpus
        self.rests = NodeRests(slot_table)
        self._places = places
        self.walltimes = walltimes  # None in a foreground run
        self.checkpoints = checkpoints  # None in a foreground run, which uses no other machine

    def examine(
        self, running: RunningAttempt, outcome: Outcome, over_mem_bytes: int = 0
    ) -> Failure | None:
        """Why an attempt failed; None if it did not. `over_mem_bytes` is the RAM that it was killed for."""
        if outcome.failure is not None:
            return Failure(kind=outcome.failure, reason=outcome.reason or "")
        if outcome.event is not Event.FAIL or not outcome.status:
            return None
        facts = self._facts_of(running) if running.slots else Facts()
        if running.entry.request.options.image is not None:
            facts = msgspec.structs.replace(facts, image=True)
        if over_mem_bytes:
            limit_bytes = running.entry.request.mem_bytes or 0
            overrun = MemoryOverrun(over_mem_bytes, limit_bytes)
            facts = msgspec.structs.replace(facts, overrun=overrun)
        return self._inspection.examine(
            outcome.status,
            running.trace or running.log,
            self._folders_of(running),
            facts,
            running.log_since,
        )

    def _facts_of(self, running: RunningAttempt) -> Facts:
        mps = self.gpus.mps
        is_client = mps is not None and mps.is_client(running)
        return Facts(
            xid=self.gpus.xid_of(running),
            mps=is_client,
            neighbours=mps is not None and mps.has_neighbours(running),
        )

    def wants_mps(self, running: RunningAttempt) -> bool:
        """Whether an attempt uses MPS: it asks for it or its kind is proved, and had no fault with it."""
        if self.gpus.mps is None or not running.slots:
            return False
        if not self._slot_table.is_own(running.node):
            return False  # Stoker starts MPS only on this machine
        if not running.entry.request.options.mps and not self.gpus.suits_mps(running):
            return False
        return not self._jobs.count_failures(running.attempt.job, FailureClass.NEIGHBOUR.value)

    def decide(self, running: RunningAttempt, outcome: Outcome, failure: Failure | None) -> Again:
        """Whether a job runs again after this outcome."""
        if outcome.event is Event.PREEMPT:
            return Again.UNCOUNTED
        if outcome.event is Event.SUCCEED:
            return Again.NO
        if running.ending is not None and not running.ending.may_retry:
            return Again.NO
        if outcome.cut_off:
            return Again.UNCOUNTED
        job, entry = running.attempt.job, running.entry
        if failure is not None and failure.remedy is Remedy.LATER and self.pause is not None:
            return Again.UNCOUNTED
        before = 0
        if failure is not None and failure.remedy in (Remedy.ONCE_MORE, Remedy.ELSEWHERE):
            before = self._jobs.count_failures(job, failure.kind.value)
        return tries_again(
            failure, tries=entry.tries, retries=entry.request.retries, same_before=before
        )

    def carry_out(self, running: RunningAttempt, failure: Failure, max_rss_kb: int | None) -> None:
        """Apply the remedy of a failure besides another try."""
        job = running.attempt.job
        if failure.kind is FailureClass.HOST_OOM and max_rss_kb:
            total, _free = read_memory()
            self._needs_bytes[job] = min(max_rss_kb * 1024, int(total * _MAX_MEMORY_SHARE))
        match failure.remedy:
            case Remedy.ELSEWHERE:
                self.avoid(running)
            case Remedy.WHEN_SPACE:
                self._stop_for_space(running)

    def avoid(self, running: RunningAttempt) -> None:
        """Keep a job off the GPUs of an attempt while there are others."""
        seen = self._avoided.get(running.attempt.job, frozenset())
        self._avoided[running.attempt.job] = seen.union(*(slot.keys for slot in running.slots))

    def go_elsewhere(self, running: RunningAttempt, reason: str) -> bool:
        """Keep a job off a node that lacks what it needs; False if no other node fits."""
        job = running.attempt.job
        unfit = {**self._unfit.get(job, {}), running.where: reason}
        allowed = self._places.allowed_of(running)
        others = Counter(
            slot_state.slot.node
            for slot_state in self._slot_table.whole_slots()
            if slot_state.slot.node not in unfit
            and (allowed is None or slot_state.slot.index in allowed)
        )
        # A job without GPU has only one node to run on.
        if not running.slots or max(others.values(), default=0) < len(running.slots):
            return False
        self._unfit[job] = unfit
        return True

    def why_unfit(self, job: int, node: str) -> str | None:
        """What a node lacks that a job needs; None if the job was not tried there."""
        return self._unfit.get(job, {}).get(node)

    def why_short(self, job: int, node: str) -> str | None:
        """Why a node does not last long enough for a job; None if it does."""
        return None if self.walltimes is None else self.walltimes.why_short(job, node)

    def forget(self, job: int) -> None:
        """Forget a job that has ended."""
        self._avoided.pop(job, None)
        self._unfit.pop(job, None)
        self._needs_bytes.pop(job, None)

    def direct(self, candidate: Candidate, job: int) -> Candidate | None:
        """Restrict a candidate to the slots that its job does not avoid, if there are any.

        Returns None for a job that the kernel killed for memory, until as much memory is free again.
        """
        if self.waits_for(job) is not None:
            return None
        unfit = self._unfit.get(job)
        if unfit is not None:
            candidate = self._restrict(candidate, unfit)
        if self.walltimes is not None and self.walltimes.ends:
            candidate = self.walltimes.restrict(candidate, job)
        candidate = self._go_to_checkpoints(candidate, job)
        keys = self._avoided.get(job)
        if keys is None:
            return candidate
        allowed = frozenset(
            slot_state.slot.index
            for slot_state in self._slot_table.whole_slots()
            if slot_state.is_open
            and keys.isdisjoint(slot_state.slot.keys)
            and (candidate.allowed is None or slot_state.slot.index in candidate.allowed)
        )
        if not self._slot_table.can_have(candidate.slots, allowed):
            return candidate
        return msgspec.structs.replace(candidate, allowed=allowed)

    def _restrict(self, candidate: Candidate, unfit: Collection[str]) -> Candidate:
        fit = frozenset(
            slot_state.slot.index
            for slot_state in self._slot_table.whole_slots()
            if slot_state.slot.node not in unfit
        )
        allowed = fit if candidate.allowed is None else fit & candidate.allowed
        return msgspec.structs.replace(candidate, allowed=allowed)

    def _go_to_checkpoints(self, candidate: Candidate, job: int) -> Candidate:
        """Restrict a candidate to the node where its checkpoints stay, for a while."""
        node = None if self.checkpoints is None else self.checkpoints.preferred(job)
        if node is None or not candidate.slots:
            return candidate
        there = frozenset(
            slot_state.slot.index
            for slot_state in self._slot_table.whole_slots()
            if slot_state.slot.node == node
            and (candidate.allowed is None or slot_state.slot.index in candidate.allowed)
        )
        if len(there) < candidate.slots:
            return candidate
        return msgspec.structs.replace(candidate, allowed=there)

    @property
    def directs(self) -> bool:
        """Whether some job is restricted to slots, or waits for memory."""
        has_ends = self.walltimes is not None and self.walltimes.ends
        return bool(
            self._avoided or self._unfit or self._needs_bytes or self.checkpoints or has_ends
        )

    @property
    def held_back(self) -> int:
        """How many waiting jobs may be skipped because they wait for memory."""
        return len(self._needs_bytes)

    def waits_for(self, job: int) -> str | None:
        """Why a job that the kernel killed waits for memory, in words; None if it does not wait."""
        needed = self._needs_bytes.get(job)
        if needed is None:
            return None
        _total, free = read_memory()
        if free >= needed:
            return None
        return (
            f"waits for memory: it had {needed / 2**30:.1f} GiB when the kernel killed it, and"
            f" {free / 2**30:.1f} GiB are free"
        )

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

    def due_s(self, now: float) -> float | None:
        """When to check space or memory again, by the engine's clock; None if no job waits for it."""
        if self._awaits_space is not None:
            return self._check_at
        if self._needs_bytes and now >= self._check_at:
            self._check_at = now + _CHECK_S
        return self._check_at if self._needs_bytes else None

    def _stop_for_space(self, running: RunningAttempt) -> None:
        where = next(filter(is_full, self._folders_of(running)), None)
        if where is None:
            return  # there is space again
        if self.pause is not None:
            self.pause(f"job {running.attempt.job} found the disk of {where} full")
        elif self._awaits_space is None:
            self._awaits_space = where
            self._tell(f"the disk of {where} is full: starting no more until there is space")

    def _folders_of(self, running: RunningAttempt) -> list[str]:
        folders = [] if running.log is None else [os.path.dirname(running.log) or "."]
        return [*folders, self._places.folder_of(running), os.environ.get("TMPDIR") or _TEMPORARY]
