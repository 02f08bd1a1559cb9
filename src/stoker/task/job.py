"""A job of a private engine, as its client sees it."""

from __future__ import annotations

import os

import msgspec

from stoker.task import messages

WAITING = "waiting"
DONE = "done"


class Job(msgspec.Struct, kw_only=True):
    """A command or call, its state and its result so far.

    `state` is waiting, running, done, failed, killed or lost. `reason` says why it did not succeed.
    Times are seconds since the Unix epoch. A job that succeeded in an earlier run is `skipped`.
    """

    number: int
    command: str
    state: str = WAITING
    gpus: list[str] = []
    slots: list[int] = []
    attempt: int = 0
    pid: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    log: str | None = None
    dir: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    cpu_s: float | None = None
    max_rss_kb: int | None = None
    skipped: bool = False

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.state == DONE

    @property
    def seconds(self) -> float | None:
        """Duration of its last attempt; None if unknown."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at

    def update(self, event: messages.Event) -> None:
        """Apply an event."""
        match event:
            case messages.Asked():
                self.slots, self.gpus = event.slots, event.gpus
            case messages.Started():
                self.state = "running"
                self.slots, self.gpus, self.pid = event.slots, event.gpus, event.pid
                self.attempt, self.started_at, self.ended_at = event.attempt, event.at, None
                self.log = None if event.log is None else os.fsdecode(event.log)
            case messages.Ended():
                self.state = WAITING if event.retried else event.state
                self.reason, self.exit_code = event.reason, event.exit_code
                self.attempt = event.attempt or self.attempt
                self.ended_at, self.cpu_s = event.at, event.cpu_s
                self.max_rss_kb = event.max_rss_kb
            case messages.Skipped():
                self.state, self.skipped = DONE, True
