"""Ends, preempts and pauses running jobs: by request and by time limit, politely first."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from stoker.engine.board import Running
from stoker.executors.contract import Executor


class Endings:
    """Signals trees, and keeps their deadlines; what it does is on record before."""

    def __init__(self, executor: Executor, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._clock = clock

    def kill(self, running: Running, reason: str, grace_s: float | None = None) -> None:
        """End a tree: a signal now, KILL when its grace is over; what has not started is taken back."""
        if running.overdue or running.preempted:  # what it was ended for before counts no more
            running.overdue = running.preempted = False
            running.killed_because = None
        running.killed_because = running.killed_because or reason
        running.grace_s = running.entry.request.options.grace_s if grace_s is None else grace_s
        if running.pid is None:
            self._executor.revoke(running.key)
        self.terminate(running, self._clock())

    def preempt(self, running: Running, reason: str) -> None:
        """End a tree as `kill` does, but let its job wait again."""
        if running.killed_because is None:
            self.kill(running, reason)
            running.preempted = True

    def pause(self, running: Running) -> None:
        """Stop a tree where it is; its time limit waits with it."""
        if running.paused_at is None:
            running.paused_at = self._clock()
            self._executor.signal(running.key, signal.SIGSTOP)

    def resume(self, running: Running) -> None:
        """Let a stopped tree go on."""
        if running.paused_at is not None:
            if running.deadline is not None:
                running.deadline += self._clock() - running.paused_at
            running.paused_at = None
            self._executor.signal(running.key, signal.SIGCONT)

    def renew_deadline(self, running: Running) -> None:
        """Heed a time limit that was changed while the job runs."""
        timeout_s = running.entry.request.timeout_s
        if running.killed_because is None and running.started_at_us is not None:
            age_s = time.time() - running.started_at_us / 1e6
            running.deadline = None if timeout_s is None else self._clock() - age_s + timeout_s

    def check_deadline(self, running: Running, now: float) -> None:
        """End what is over its time limit, and kill what is over its grace."""
        if running.deadline is None or now < running.deadline or running.paused_at is not None:
            return
        if running.killed_because is None:
            request = running.entry.request
            running.overdue = True
            running.preempted = request.options.requeue
            running.killed_because = f"over the time limit of {request.timeout_s:g} s"
            running.grace_s = request.options.grace_s
            self.terminate(running, now)
        else:
            running.deadline = None
            self._executor.kill(running.key)

    def terminate(self, running: Running, now: float) -> None:
        """Ask a tree to end; its deadline is now the end of its grace."""
        running.asked_to_end = True
        running.deadline = now + running.grace_s
        self._executor.signal(running.key, running.entry.request.options.stop_signal)
        if running.paused_at is not None:
            # What is stopped hears no signal but KILL.
            running.paused_at = None
            self._executor.signal(running.key, signal.SIGCONT)
