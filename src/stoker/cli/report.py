"""What `stoker run` tells: passing output through, log files, tags, JSON or a live view; a summary."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stoker.cli.durations import format_duration
from stoker.cli.terminal import last_lines, one_line
from stoker.core.job import Attempt, Outcome
from stoker.core.lifecycle import TABLE, Event
from stoker.engine.board import Running
from stoker.engine.foreground import Foreground
from stoker.errors import StokerError, UsageError
from stoker.executors.contract import Ended
from stoker.executors.shepherd.trees import descends_from

if TYPE_CHECKING:
    import argparse

    from stoker.cli.view import View
    from stoker.core.slot import Slot
    from stoker.engine.watchman import Watchman
    from stoker.gpus.nvml import Nvml
    from stoker.store.runs import Run

_FAILURES_SHOWN = 20


class Report:
    """Listens to an engine and tells people, or programs, about it."""

    def __init__(self, args: argparse.Namespace, record: Run, slots: tuple[Slot, ...]) -> None:
        self._args = args
        self._record = record
        self._slots = slots
        self._began = time.monotonic()
        self._failures: list[str] = []
        self._not_shown = 0
        self._foreground: Foreground | None = None
        self._view: View | None = None
        self.log_of: Callable[[Attempt], str | None] = self._choose_log()

    def follow(self, foreground: Foreground, nvml: Nvml | None, *, mind_others: bool) -> int:
        """See a run through to its end; the exit code."""
        self._foreground = foreground
        watchman = self._watch(foreground, nvml, mind_others=mind_others) if nvml else None
        if self._is_live():
            from stoker.cli.view import View

            self._view = View(foreground.engine, watchman, self._total())
        try:
            with self._view or _nothing():
                foreground.run(self._view.refresh if self._view else lambda: None)
        finally:
            if self._tagger is not None:
                self._tagger.close()
            if watchman is not None:
                foreground.unlisten(watchman.fileno())
                watchman.stop()
        self._view = None
        return self._summarise(foreground)
