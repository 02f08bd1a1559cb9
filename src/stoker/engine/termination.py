"""Ends, preempts and pauses running attempts: by request and by time limit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import msgspec

from stoker.core.durations import spell_duration
from stoker.core.job import Ending
from stoker.engine.deadlines import Deadlines
from stoker.engine.running_attempt import EndRequest, Paused, Running, RunningAttempt
from stoker.executors.contract import Executor


class Termination:
    """Decides which signals to send. `carry_out` sends them after the decision is recorded.

    Callers of `kill`, `preempt`, `pause` and `resume` record these themselves. What a time limit ends is
    recorded through `record`.
    """

    def __init__(
        self,
        executor: Executor,
        clock: Callable[[], float],
        record: Callable[[int, Ending, str], None],
        deadlines: Deadlines,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._record = record
        self._deadlines = deadlines
        self._pending: list[Callable[[], None]] = []
        self.most_job_s: Callable[[], float | None] = lambda: None  # by the rules of the box
        # The grace of attempts that are preempted; None: that of their options.
        self.preempt_grace_of: Callable[[RunningAttempt], float] | None = None

    def limit_of(self, running: RunningAttempt) -> float | None:
        """Return the time limit of an attempt in seconds: its own, or that of the box; None for any time."""
        most_s = self.most_job_s() if running.slots else None
        limits = [each for each in (running.entry.request.timeout_s, most_s) if each is not None]
        return min(limits, default=None)

    def carry_out(self) -> None:
        """Send the pending signals; to be called after a commit."""
        pending, self._pending = self._pending, []
        for send in pending:
            send()

    def kill(self, running: RunningAttempt, reason: str, grace_s: float | None = None) -> None:
        """End an attempt: by its stop signal, and by SIGKILL after the grace period.

        The reason replaces that of another ending. Of two kills the first reason counts.
        """
        request = running.end_request
        if request is not None and request.is_sent and request.ending is Ending.KILL:
            reason = request.reason
        self._end(running, Ending.KILL, reason, grace_s)

    def preempt(
        self, running: RunningAttempt, reason: str, ending: Ending = Ending.PREEMPT
    ) -> None:
        """End an attempt as `kill` does, but let its job wait again. No effect if it is ended already."""
        self.end(running, ending, reason)

    def end(self, running: RunningAttempt, ending: Ending, reason: str) -> None:
        """End an attempt as `kill` does, in another way. No effect if it is ended already."""
        if running.end_request is None:
            self._end(running, ending, reason)

    def prune(self, running: RunningAttempt, reason: str, grace_s: float) -> None:
        """End an attempt early. It has a time to end by itself, and then gets its stop signal."""
        if running.end_request is None:
            running.end_request = EndRequest(Ending.PRUNE, reason, grace_s)
            self.go_on_ending(running, self._clock(), is_new=running.pid is None)
            if running.pid is None:
                self._pending.append(lambda: self._executor.revoke(running.key))

    def go_on_ending(self, running: RunningAttempt, now: float, *, is_new: bool) -> None:
        """End an attempt as was decided; `is_new` if it has not begun its work."""
        request = running.end_request
        assert request is not None
        if (
            request.ending is Ending.PRUNE
            and not request.is_sent
            and not is_new
            and request.grace_s
        ):
            running.deadline = now + request.grace_s
            self._deadlines.note(running)
        else:
            self.terminate(running, now)

    def pause(self, running: RunningAttempt) -> None:
        """Stop the processes of an attempt. Its time limit is extended by the pause."""
        phase = running.phase
        if isinstance(phase, Running) and running.end_request is None:
            running.phase = Paused(phase.pid, phase.started_at_us, self._clock())
            self._signal(running, signal.SIGSTOP)

    def resume(self, running: RunningAttempt) -> None:
        """Let the processes of a paused attempt go on."""
        phase = running.phase
        if isinstance(phase, Paused):
            self.count_stop(running, phase.since)
            self._unpause(running, phase)
            self._deadlines.note(running)

    def count_stop(self, running: RunningAttempt, since: float) -> None:
        """Extend the time limit of an attempt by the time since it was stopped."""
        stopped_s = self._clock() - since
        running.paused_s += max(stopped_s, 1e-6)
        if running.deadline is not None:
            running.deadline += stopped_s

    def repeat(self, running: RunningAttempt) -> None:
        """Repeat the last pause or resume, which may have been lost with an earlier engine."""
        mem_bytes = running.entry.request.mem_bytes
        if mem_bytes is not None and running.paused_s and not running.is_suspended:
            self._pending.append(lambda: self._executor.limit(running.key, mem_bytes))
        if running.is_paused:
            self._signal(running, signal.SIGSTOP)
        elif running.paused_s and not running.is_suspended:
            self._signal(running, signal.SIGCONT)

    def renew_deadline(self, running: RunningAttempt) -> None:
        """Apply a time limit that was changed while the job runs."""
        timeout_s = self.limit_of(running)
        if running.end_request is None and running.started_at_us is not None:
            age_s = time.time() - running.started_at_us / 1e6 - running.paused_s
            running.deadline = None if timeout_s is None else self._clock() - age_s + timeout_s
            self._deadlines.note(running)

    def follow_rules(self, running: RunningAttempt) -> float | None:
        """Apply a time limit of the box that has changed; returns the deadline."""
        limit_s = self.limit_of(running)
        if running.end_request is None and running.started_at_us is not None:
            begun = running.begun + running.paused_s
            running.deadline = None if limit_s is None else begun + limit_s
            self._deadlines.note(running)
        return running.deadline

    def check_deadline(self, running: RunningAttempt, now: float) -> None:
        """End an attempt that is over its time limit; kill one that is over its grace period."""
        if running.deadline is None or now < running.deadline or running.is_stopped:
            return
        if running.end_request is None:
            deadline = self.follow_rules(running)  # the box may have a longer time limit by now
            limit_s = self.limit_of(running)
            if deadline is None or limit_s is None or now < deadline:
                return
            request = running.entry.request
            whose = "" if limit_s == request.timeout_s else " that this machine's rules set"
            reason = f"over the time limit of {spell_duration(limit_s)}{whose}"
            ending = Ending.PREEMPT if request.options.requeue else Ending.OVERDUE
            self._record(running.attempt.job, ending, reason)
            self._end(running, ending, reason)
        elif running.ending is Ending.PRUNE and not running.end_request.is_sent:
            self.terminate(running, now)
        else:
            running.deadline = None
            self._pending.append(lambda: self._executor.kill(running.key))

    def terminate(self, running: RunningAttempt, now: float) -> None:
        """Send the stop signal to an attempt with an end request. Its grace period begins."""
        assert running.end_request is not None
        request = running.end_request
        # The grace of an early end comes before the signal.
        grace_s = running.entry.request.options.grace_s
        grace_s = grace_s if request.ending is Ending.PRUNE else request.grace_s
        request = msgspec.structs.replace(request, grace_s=grace_s, is_sent=True)
        running.end_request = request
        running.deadline = now + request.grace_s
        if running.is_suspended:
            # Its CUDA calls block, so it cannot end by itself: SIGKILL also frees its host memory.
            running.deadline = None
            self._pending.append(lambda: self._executor.kill(running.key))
            return
        self._deadlines.note(running)
        options = running.entry.request.options
        self._pending.append(
            lambda: self._executor.signal(
                running.key, options.stop_signal, request.grace_s, main_only=options.signal_main
            )
        )
        if isinstance(running.phase, Paused):
            self._unpause(running, running.phase)  # a stopped process handles no signal but SIGKILL

    def _end(
        self, running: RunningAttempt, ending: Ending, reason: str, grace_s: float | None = None
    ) -> None:
        if grace_s is None and ending.is_preemption and self.preempt_grace_of is not None:
            grace_s = self.preempt_grace_of(running)
        elif grace_s is None:
            grace_s = running.entry.request.options.grace_s
        running.end_request = EndRequest(ending, reason, grace_s)
        if running.pid is None:
            self._pending.append(lambda: self._executor.revoke(running.key))
        self.terminate(running, self._clock())

    def _unpause(self, running: RunningAttempt, phase: Paused) -> None:
        running.phase = Running(phase.pid, phase.started_at_us)
        self._signal(running, signal.SIGCONT)

    def _signal(self, running: RunningAttempt, signum: int) -> None:
        self._pending.append(lambda: self._executor.signal(running.key, signum))
