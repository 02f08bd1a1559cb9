"""Stops a project whose jobs fail one after another for the same reason, before all of them have."""

from __future__ import annotations

import re
from collections.abc import Callable

from stoker.core.job import Outcome
from stoker.core.lifecycle import Event
from stoker.engine.board import Running
from stoker.engine.gate import Gate

# Figures differ from run to run where the fault is the same: steps, pids, free memory.
_DIGITS = re.compile(r"\d+(?:\.\d+)?")


class Brake:
    """Counts failures in a row; `limit` that failed the same way pause a project, 0 never does."""

    def __init__(
        self, gate: Gate, tell: Callable[[str], None], take_back: Callable[[str], None]
    ) -> None:
        self._gate = gate
        self._tell = tell
        self._take_back = take_back
        self.limit = 0
        self._streaks: dict[str, tuple[str, int]] = {}

    def on_end(self, running: Running, outcome: Outcome) -> None:
        """Count an end; may pause the project, inside the engine's transaction."""
        project = running.entry.facts.project if running.entry.facts is not None else None
        if project is None or not self.limit or project in self._gate.projects_paused:
            return
        if outcome.event is not Event.FAIL or outcome.reason is None:
            if outcome.event is Event.SUCCEED:
                self._streaks.pop(project, None)
            return
        status, _, words = outcome.reason.partition(": ")
        way = f"{status}: {_DIGITS.sub('#', words)}"
        last_way, count = self._streaks.get(project, ("", 0))
        count = count + 1 if last_way == way else 1
        self._streaks[project] = (way, count)
        if count >= self.limit:
            del self._streaks[project]
            if not self._gate.has_pending(project):
                return  # nothing is left that could be spared
            text = f"{count} jobs in a row failed: {outcome.reason}"
            self._gate.pause_project(project, text)
            self._take_back(project)
            self._tell(
                f"project {project} is paused, {text}; stoker resume --queue -P {project} goes on"
            )
