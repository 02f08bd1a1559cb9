"""Publishes what the engine does to the daemon's listeners and its log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable

from stoker.core.job import Outcome
from stoker.core.lifecycle import State
from stoker.engine.event_broadcast import Broadcast
from stoker.engine.meter import Meter
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.contract import Ended
from stoker.wire import JobEvent, NoticeEvent

_NOTICES = 20
_STAMP = len("2026-12-31 23:59:59 ")  # what a notice begins with


class Publisher:
    """Engine listener of the daemon: broadcasts and counts events, keeps notices, calls followers."""

    def __init__(self, events: Broadcast, meter: Meter) -> None:
        self._events = events
        self._meter = meter
        self.followers: list[
            Callable[[RunningAttempt, Outcome], None]
        ] = []  # of jobs that are over
        self.attempt_followers: list[Callable[[RunningAttempt, Outcome], None]] = []
        self.notices: deque[str] = deque(maxlen=_NOTICES)
        self._pauses: dict[str, str] = {}  # the notice of each pause that has one

    def on_launch(self, running: RunningAttempt) -> None:
        """Publish that a job is about to start."""
        self._publish(running, State.STARTING)

    def on_start(self, running: RunningAttempt) -> None:
        """Publish that a job runs."""
        self._meter.on_start(running)
        self._publish(running, State.RUNNING)

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, _ended: Ended | None, retried: bool
    ) -> None:
        """Publish how an attempt ended, and that its job waits again if it is retried."""
        self._meter.on_end(running, outcome, retried=retried)
        self._publish(running, outcome.state, outcome.reason)
        for follower in self.attempt_followers:
            follower(running, outcome)
        if retried:
            self._publish(running, State.WAITING)
            return
        for follower in self.followers:
            follower(running, outcome)

    def on_change(self, job: int, state: State) -> None:
        """Publish the new state of a job that has not started."""
        self._events.publish(JobEvent(id=job, state=state, attempt=0, at=time.time()))

    def on_notice(self, text: str) -> None:
        """Publish a notice, keep it for `status`, and log it."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        self.notices.append(f"{stamp} {text}")
        log(text)
        self._events.publish(NoticeEvent(text=text, at=time.time()))

    def on_pause(self, paused: str, text: str) -> None:
        """Publish the notice of a pause, kept until it is over; `paused` names what is paused."""
        self.on_notice(text)
        self._pauses[paused] = self.notices[-1]

    def on_resume(self, paused: str) -> None:
        """Drop the notice of a pause that is over."""
        with contextlib.suppress(KeyError, ValueError):
            self.notices.remove(self._pauses.pop(paused))

    def forget_sweep(self, name: str) -> None:
        """Drop the notices of a sweep, which is ordered anew: `stoker wait` tells those of its last order."""
        beginnings = (f"sweep {name}: ", f"sweep {name} ")
        kept = [each for each in self.notices if not each[_STAMP:].startswith(beginnings)]
        self.notices.clear()
        self.notices += kept

    def _publish(self, running: RunningAttempt, state: State, reason: str | None = None) -> None:
        if not self._events.is_heard:
            self._events.touch()
            return
        self._events.publish(
            JobEvent(
                id=running.attempt.job,
                state=state,
                attempt=running.attempt.number,
                at=time.time(),
                slots=running.label or None,
                reason=reason,
            )
        )


def log(text: str) -> None:
    """Write a line to the daemon's log; ignores a full disk."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        sys.stderr.flush()
