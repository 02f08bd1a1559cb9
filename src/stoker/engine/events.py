"""The listener interface of an engine, and notices that are not repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stoker.core.job import Outcome
from stoker.engine.running_attempt import RunningAttempt
from stoker.executors.contract import Ended


class EngineListener(Protocol):
    """Gets the events of an engine, to print or publish them; must return quickly."""

    def on_launch(self, running: RunningAttempt) -> None:
        """Handle an attempt that is about to be started."""

    def on_start(self, running: RunningAttempt) -> None:
        """Handle an attempt that is a process now."""

    def on_end(
        self, running: RunningAttempt, outcome: Outcome, ended: Ended | None, retried: bool
    ) -> None:
        """Handle the end of an attempt; `retried` if its job runs again."""

    def on_notice(self, text: str) -> None:
        """Handle a message for the user."""


class Notices:
    """Passes notices to the user; can suppress repeated ones."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._told: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Whether a text is new; from now on it is not."""
        if text in self._told:
            return False
        self._told.add(text)
        return True

    def tell_once(self, text: str) -> None:
        """Pass a notice on unless it was passed on before."""
        if self.is_new(text):
            self.tell(text)

    def forget(self, text: str) -> None:
        """Let `tell_once` pass a notice on again."""
        self._told.discard(text)
