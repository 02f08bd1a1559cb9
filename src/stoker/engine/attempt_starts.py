"""Records the intent to start a job, and builds its launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from stoker.core.job import Attempt
from stoker.core.planner import Start
from stoker.engine.attempt_ends import AttemptEnds
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.events import EngineListener
from stoker.engine.failure_inspection import size_of
from stoker.engine.queue import Queue, QueueEntry
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.running_attempt import RunningAttempt, label_of
from stoker.engine.slots import SlotTable
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import Launch, Restore
from stoker.store.jobs import Jobs

if TYPE_CHECKING:
    from stoker.engine.suspensions import Suspensions
    from stoker.executors.contract import AttemptTransfer
    from stoker.warm.messages import ForkRequest


class LaunchSpec(msgspec.Struct, frozen=True):
    """How an attempt is to be started."""

    argv: list[str]
    log: str | None = None
    context: int = 0
    env: Mapping[str, str] | None = None
    warm: ForkRequest | None = None
    cold: str | None = None  # why it does not start warm, although it was asked for
    transfer: AttemptTransfer | None = None  # what another node needs to start it
    trace: str | None = None  # the file that holds its error, if that is not the log
    checkpoints: str | None = None  # its folder of checkpoints, which goes along to another node
    program: str | None = None  # the name of its program, if PATH decides which that is

    def start_warm(
        self,
        words: list[str] | None,
        modules: Sequence[str],
        *,
        cwd: str,
        home: str,
        name: str = "",
    ) -> LaunchSpec:
        """The same command forked from a warm worker, or with the reason why it starts cold.

        `words` is None for a command that needs a shell. `name` separates uses of one program.
        """
        from stoker.warm.command import NEEDS_SHELL, make_warm  # late: few jobs start warm

        if words is None:
            return msgspec.structs.replace(self, cold=NEEDS_SHELL)
        found = make_warm(words, list(modules), cwd, os.path.join(home, "warm"), name)
        if isinstance(found, str):
            return msgspec.structs.replace(self, cold=found)
        return msgspec.structs.replace(self, warm=found)


Prepare = Callable[[Attempt, QueueEntry], LaunchSpec]
"""Says how an attempt is started; raises OSError if a file that it needs cannot be written."""


class LaunchBuilder(msgspec.Struct, eq=False):
    """Builds the launch of a claimed attempt, with its log, MPS and warm start."""

    prepare: Prepare
    jobs: Jobs
    retry_policy: RetryPolicy
    warm_status: WarmStatus

    def needs_slot_first(self, running: RunningAttempt) -> bool:
        """Whether the command depends on the GPU, which an attempt claimed ahead does not know."""
        mps = self.retry_policy.gpus.mps
        return running.is_claimed_ahead and running.entry.request.options.mps and mps is not None

    def build(self, running: RunningAttempt) -> Launch:
        """Build the launch of an attempt; raises OSError."""
        spec = self.prepare(running.attempt, running.entry)
        self._note_log(running, spec)
        if spec.cold is not None:
            self.warm_status.on_cold(running.attempt.job, spec.cold)
        argv, env = spec.argv, spec.env
        mps = self.retry_policy.gpus.mps
        if mps is not None and self.retry_policy.wants_mps(running):
            argv = mps.serve(running, argv)
            if spec.warm is not None:  # a forked job does not run through `env`
                env = {**(env or {}), **mps.variables(running)}
        return Launch(
            running.key,
            tuple([slot.index for slot in running.slots]),
            argv,
            spec.log,
            spec.context,
            env,
            spec.warm,
            running.node,
            spec.transfer,
            running.is_claimed_ahead,
            self._checkpoints(running, spec),
            spec.program,
            running.entry.request.mem_bytes or 0,
            running.entry.request.cpus or 0,
        )

    def _checkpoints(self, running: RunningAttempt, spec: LaunchSpec) -> str | None:
        """Return the folder of checkpoints to send along; None if its node has newer ones."""
        places = self.retry_policy.checkpoints
        if places is None or not places.travel(running.attempt.job, running.where):
            return None
        return spec.checkpoints

    def _note_log(self, running: RunningAttempt, spec: LaunchSpec) -> None:
        """Note where an attempt writes its errors, and how much earlier attempts have written there."""
        running.log, running.trace = spec.log, spec.trace
        if (log := spec.trace or spec.log) is not None:
            running.log_since = size_of(log)
            if running.log_since:
                self.jobs.note_log_since(running.attempt.job, running.log_since)


class AttemptStarts(msgspec.Struct, kw_only=True, eq=False):
    """Claims jobs for free slots or ahead, inside the turn's transaction."""

    slot_table: SlotTable
    queue: Queue
    launches: LaunchBuilder
    ends: AttemptEnds
    claims_ahead: ClaimsAhead
    listener: EngineListener
    suspensions: Suspensions | None

    def claim(self, entry: QueueEntry, start: Start, now: float) -> Launch | Restore | None:
        """Record the intent of a start or of a resumption; None if the job cannot start now."""
        if entry.suspended is not None:
            assert self.suspensions is not None
            return self.suspensions.claim(entry, start, now)
        running = self._record_claim(entry, start, now)
        if self.launches.needs_slot_first(running):
            self.claims_ahead.needs_slot_first = True
            self.ends.take_back(running)
            return None
        try:
            launch = self.launches.build(running)
        except OSError as error:
            self.ends.refuse(running, error.errno or 0, error.strerror or str(error), now)
            return None
        self.listener.on_launch(running)
        return launch

    def reject_impossible(self) -> None:
        """Record commands that can never run as failed."""
        while self.queue.rejected:
            self.ends.reject(*self.queue.rejected.popleft())

    def _record_claim(self, entry: QueueEntry, start: Start, now: float) -> RunningAttempt:
        """Record the intent to start a job, and add its attempt to the slot table."""
        slots = tuple([self.slot_table.states[index].slot for index in start.slots])
        node = slots[0].node if slots else self.slot_table.node_without_gpu(entry.candidate)
        label = "" if start.in_advance else label_of(slots, node)
        attempt = self.queue.claim(entry, label)
        running = RunningAttempt(
            key=attempt.key, attempt=attempt, entry=entry, slots=(), begun=now, node=node
        )
        if start.in_advance:
            self.slot_table.claim_ahead(running)
        else:
            running.slots = slots
            self.slot_table.occupy(running)
        return running
