"""What an engine tells whoever listens: a printer, a live view, a stream of JSON."""

from __future__ import annotations

from typing import Protocol

from stoker.core.job import Outcome
from stoker.engine.slots import RunningAttempt
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
