"""Records how attempts end, and requeues or finishes their jobs."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING

import msgspec

from stoker.core.failure import Again, Failure, FailureClass, Remedy
from stoker.core.job import Ending, Outcome, describe_leftovers
from stoker.core.lifecycle import Event, State
from stoker.engine.events import EngineListener, Notices
from stoker.engine.gpu_features import GpuFeatures
from stoker.engine.queue import Queue, QueueEntry
from stoker.engine.retry_policy import RetryPolicy
from stoker.engine.run_progress import RunProgress
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Ended
from stoker.store.jobs import Jobs, Known, Usage

if TYPE_CHECKING:
    from stoker.core.sharing.overrun import Verdict
    from stoker.core.usage import AttemptUse

# Resources that a machine can lack for a while; the command is not the cause.
_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))
# Before a container is tried again that could not be started.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 900.0
_GPU_FAULTS = frozenset((FailureClass.GPU_FAULT, FailureClass.NEIGHBOUR))
_TEMPORARY = _NO_SPACE | {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class AttemptEnds(msgspec.Struct, kw_only=True, eq=False):
    """Removes attempts from the slot table: those that ended, and those that never started."""

    slot_table: SlotTable
    queue: Queue
    jobs: Jobs
    retry_policy: RetryPolicy
    progress: RunProgress
    listener: EngineListener
    notices: Notices

    @property
    def gpus(self) -> GpuFeatures:
        """The GPU features of the engine."""
        return self.retry_policy.gpus

    def end(self, running: RunningAttempt, outcome: Outcome, ended: Ended | None = None) -> None:
        """Record the end of an attempt; `ended` is None if the end of its process was not reported."""
        over_mem_bytes = 0 if ended is None else ended.over_mem_bytes
        failure = self.retry_policy.examine(running, outcome, over_mem_bytes)
        running.failure = None if failure is None else failure.kind
        use = self.gpus.measure(running, 0 if ended is None else ended.gpu_peak_bytes)
        verdict = self._judge_memory(running, failure, use)
        outcome = self._explain(running, outcome, failure, verdict, ended)
        usage = _usage_of(ended)
        self._record(running, outcome, usage, failure, use)
        self.gpus.leave_mps(running)
        again = self._decide(running, outcome, failure, verdict)
        if again is Again.NO:
            self._conclude(running, outcome)
        else:
            self._retry(running, outcome, again)
            if failure is not None:
                self.retry_policy.carry_out(running, failure, usage.max_rss_kb)
        if self.gpus.sharing is not None:
            is_fault = failure is not None and failure.kind in _GPU_FAULTS
            self.gpus.sharing.on_end(
                running,
                outcome,
                use,
                is_over=again is Again.NO,
                is_fault=is_fault,
                ram_bytes=(usage.max_rss_kb or 0) * 1024,
            )
        self.listener.on_end(running, outcome, ended, again is not Again.NO)

    def refuse(self, running: RunningAttempt, code: int, reason: str, now: float) -> None:
        """Handle an attempt that could not be started: requeue its job if the cause is temporary."""
        if code in _TEMPORARY and not self.slot_table.is_own(running.where):
            self.retry_policy.rests.begin(running.where, reason, now)
            self.notices.tell_once(f"{running.where} gets no jobs for now: {reason}")
            self.take_back(running)
            return
        if code in _TEMPORARY:
            self.progress.pause_briefly(now)
            space = "free some space; " if code in _NO_SPACE else ""
            self.notices.tell_once(f"cannot start commands for now ({reason}): {space}trying again")
            self.take_back(running)
            return
        lacks = code == errno.ENOENT and not self.slot_table.is_own(running.where)
        if lacks and self.retry_policy.go_elsewhere(running, reason):
            self.notices.tell_once(f"{reason}: jobs that need it run elsewhere")
            self.take_back(running)
            return
        self.end(running, Outcome(event=Event.FAIL, reason=f"could not start: {reason}"))

    def take_back(self, running: RunningAttempt) -> None:
        """Handle an attempt that never started: requeue its job, unless it was to be killed."""
        request = running.end_request
        if (
            request is None
            or request.ending.is_preemption
            or (self.progress.draining and not request.is_sent)
        ):
            self.revoke(running)
        else:
            self.end(running, Outcome(event=request.ending.event, reason=request.reason))

    def revoke(self, running: RunningAttempt) -> None:
        """Record that an attempt never started, and requeue its job."""
        self.slot_table.vacate(running)
        if self.gpus.sharing is not None:
            self.gpus.sharing.gpus.leave(running)
        self.jobs.revoke(running.attempt.job)
        running.entry.tries -= 1
        self._wait_again(running, attempts=running.attempt.number - 1)

    def reject(self, entry: QueueEntry, reason: str) -> None:
        """Record a command that can never run as failed."""
        attempt = self.queue.record(entry, "")
        outcome = Outcome(event=Event.FAIL, reason=reason)
        self.jobs.end(attempt.job, outcome)
        self.progress.count_end(Event.FAIL)
        running = RunningAttempt(key=attempt.key, attempt=attempt, entry=entry, slots=())
        self.listener.on_end(running, outcome, None, False)

    def _judge_memory(
        self, running: RunningAttempt, failure: Failure | None, use: AttemptUse | None
    ) -> Verdict | None:
        """The verdict on a job that ran out of GPU memory; None for other failures."""
        sharing = self.gpus.sharing
        if sharing is None or failure is None:
            return None
        if failure.is_mute:
            return sharing.needs.judge_mute(running)
        if failure.remedy is not Remedy.MORE_ROOM:
            return None
        verdict = sharing.needs.judge_oom(running, failure, use)
        if verdict is not None and verdict.is_elsewhere:
            self.retry_policy.avoid(running)
        return verdict

    def _explain(
        self,
        running: RunningAttempt,
        outcome: Outcome,
        failure: Failure | None,
        verdict: Verdict | None,
        ended: Ended | None,
    ) -> Outcome:
        """Add the reason to an outcome: the failure, and processes that the job left behind."""
        reason = outcome.reason
        if failure is not None:
            reason = failure.reason if verdict is None else f"{failure.reason}; {verdict.why}"
        if ended is not None and (ended.leftovers or ended.stuck):
            note = describe_leftovers(ended.leftovers, ended.stuck) or ""
            if self.notices.is_new(note):  # several jobs can leave the same processes
                self.notices.tell(f"job {running.attempt.job}: {note}")
            reason = f"{reason}; {note}" if reason else note
        if reason is outcome.reason:
            return outcome
        return Outcome(event=outcome.event, status=outcome.status, reason=reason)

    def _record(
        self,
        running: RunningAttempt,
        outcome: Outcome,
        usage: Usage,
        failure: Failure | None,
        use: AttemptUse | None,
    ) -> None:
        job = running.attempt.job
        begun = running.pid, running.started_at_us, running.taken_by
        self.jobs.end(job, outcome, usage, *begun)
        if failure is not None:
            self.jobs.note_failure(job, failure.kind.value)
        if use is not None:
            self.jobs.note_gpu_use(job, use)

    def _decide(
        self,
        running: RunningAttempt,
        outcome: Outcome,
        failure: Failure | None,
        verdict: Verdict | None,
    ) -> Again:
        """Whether a job runs again; while the engine drains, only a preempted job does."""
        if outcome.is_success:
            return Again.NO
        again = self.retry_policy.decide(running, outcome, failure)
        if verdict is not None:
            again = verdict.again or again
        if self.progress.draining and outcome.event is not Event.PREEMPT:
            return Again.NO
        return again

    def _retry(self, running: RunningAttempt, outcome: Outcome, again: Again) -> None:
        job = running.attempt.job
        if self.retry_policy.checkpoints is not None:
            self.retry_policy.checkpoints.on_requeued(running)
        self.jobs.retry(job)
        self.slot_table.vacate(running)
        if again is Again.UNCOUNTED:
            running.entry.tries -= 1
        self._wait_again(running, attempts=running.attempt.number)
        if again is Again.UNCOUNTED:
            behind = outcome.event is Event.PREEMPT and running.ending is Ending.PREEMPT
            self.queue.on_preempted(job, behind=behind)
            if running.failure is FailureClass.CONTAINER:
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (running.attempt.number - 1))
                self.queue.delay(job, pause_s)
        else:
            self.queue.back_off(running.entry, job)

    def _conclude(self, running: RunningAttempt, outcome: Outcome) -> None:
        job = running.attempt.job
        self.slot_table.vacate(running)
        self.retry_policy.forget(job)
        if outcome.is_success and self.retry_policy.checkpoints is not None:
            self.retry_policy.checkpoints.forget(job)
        self.queue.on_over(job)
        self.progress.count_end(outcome.event)

    def _wait_again(self, running: RunningAttempt, attempts: int) -> None:
        self.queue.put_back(running.entry, Known(running.attempt.job, State.WAITING, attempts))


def _usage_of(ended: Ended | None) -> Usage:
    if ended is None:
        return Usage(time.time_ns() // 1000)
    return Usage(ended.at_us, ended.cpu_us, ended.max_rss_kb)
