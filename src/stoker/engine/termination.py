"""Ends, preempts and pauses running jobs: by request and by time limit, politely first."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from stoker.core.job import Ending
from stoker.engine.deadlines import Deadlines
from stoker.engine.slots import RunningAttempt
from stoker.executors.contract import Executor


class Termination:
    """Decides what is signalled when; it is sent by `carry_out`, once what was decided is on record.

    Whoever calls `kill`, `preempt`, `pause` or `resume` has recorded that. What a time limit ends is
    recorded through `note`.
    """

    def __init__(
        self,
        executor: Executor,
        clock: Callable[[], float],
        note: Callable[[int, Ending, str], None],
        deadlines: Deadlines,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._note = note
        self._deadlines = deadlines
        self._orders: list[Callable[[], None]] = []

    def carry_out(self) -> None:
        """Send the signals; to be called after a commit."""
        orders, self._orders = self._orders, []
        for order in orders:
            order()

    def kill(self, running: RunningAttempt, reason: str, grace_s: float | None = None) -> None:
        """End a tree: a signal, KILL when its grace is over; what has not started is taken back."""
        # A kill overrules what it was to be ended for before.
        if running.ending is not Ending.KILL:
            running.killed_because = reason
        self._end(running, Ending.KILL, grace_s)

    def preempt(
        self, running: RunningAttempt, reason: str, ending: Ending = Ending.PREEMPT
    ) -> None:
        """End a tree as `kill` does, but let its job wait again; not if it is being ended already."""
        if running.killed_because is None:
            running.killed_because = reason
            self._end(running, ending, None)

    def pause(self, running: RunningAttempt) -> None:
        """Stop a tree where it is; its time limit waits with it."""
        if running.paused_at is None and running.killed_because is None:
            running.paused_at = self._clock()
            self._signal(running, signal.SIGSTOP)

    def resume(self, running: RunningAttempt) -> None:
        """Let a stopped tree go on."""
        if running.paused_at is not None:
            paused_s = self._clock() - running.paused_at
            running.stopped_s += max(paused_s, 1e-6)
            if running.deadline is not None:
                running.deadline += paused_s
            running.paused_at = None
            self._deadlines.note(running)
            self._signal(running, signal.SIGCONT)

    def repeat(self, running: RunningAttempt) -> None:
        """Stop a tree, or let it go on, of which nobody knows whether it has heard that."""
        if running.paused_at is not None:
            self._signal(running, signal.SIGSTOP)
        elif running.stopped_s:
            self._signal(running, signal.SIGCONT)

    def renew_deadline(self, running: RunningAttempt) -> None:
        """Heed a time limit that was changed while the job runs."""
        timeout_s = running.entry.request.timeout_s
        if running.killed_because is None and running.started_at_us is not None:
            age_s = time.time() - running.started_at_us / 1e6 - running.stopped_s
            running.deadline = None if timeout_s is None else self._clock() - age_s + timeout_s
            self._deadlines.note(running)

    def check_deadline(self, running: RunningAttempt, now: float) -> None:
        """End what is over its time limit, and kill what is over its grace."""
        if running.deadline is None or now < running.deadline or running.paused_at is not None:
            return
        if running.killed_because is None:
            request = running.entry.request
            reason = f"over the time limit of {request.timeout_s:g} s"
            ending = Ending.PREEMPT if request.options.requeue else Ending.OVERDUE
            self._note(running.attempt.job, ending, reason)
            running.killed_because = reason
            self._end(running, ending, None)
        else:
            running.deadline = None
            self._orders.append(lambda: self._executor.kill(running.key))

    def terminate(self, running: RunningAttempt, now: float) -> None:
        """Ask a tree to end; its deadline is now the end of its grace."""
        running.asked_to_end = True
        running.deadline = now + running.grace_s
        self._deadlines.note(running)
        stop_signal, grace_s = running.entry.request.options.stop_signal, running.grace_s
        self._orders.append(lambda: self._executor.signal(running.key, stop_signal, grace_s))
        if running.paused_at is not None:
            # What is stopped hears no signal but KILL.
            running.paused_at = None
            self._signal(running, signal.SIGCONT)

    def _end(self, running: RunningAttempt, ending: Ending, grace_s: float | None) -> None:
        running.ending = ending
        running.grace_s = running.entry.request.options.grace_s if grace_s is None else grace_s
        if running.pid is None:
            self._orders.append(lambda: self._executor.revoke(running.key))
        self.terminate(running, self._clock())

    def _signal(self, running: RunningAttempt, signum: int) -> None:
        self._orders.append(lambda: self._executor.signal(running.key, signum))
