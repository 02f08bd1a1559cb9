"""What an engine tells whoever listens: a printer, a live view, a stream of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stoker.core.job import Outcome
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.contract import Ended


class EngineListener(Protocol):
    """Hears of everything that happens; must return quickly."""

    def on_launch(self, running: RunningAttempt) -> None:
        """Take note that an attempt is about to be started."""

    def on_start(self, running: RunningAttempt) -> None:
        """Take note that an attempt is a process now."""

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Take note that an attempt is over; `retried` if the job gets another one."""

    def on_notice(self, text: str) -> None:
        """Take note of something a person should know."""


class Notices:
    """Passes notices on to people, and repeats none that would be true again and again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._told: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Whether a text has not been told yet; from now on it counts as told."""
        if text in self._told:
            return False
        self._told.add(text)
        return True

    def tell_once(self, text: str) -> None:
        """Tell a text unless it has been told before."""
        if self.is_new(text):
            self.tell(text)
