"""Pauses a project, or the jobs without one, whose jobs fail repeatedly."""

from __future__ import annotations

import re
from collections.abc import Callable

from stoker.core.job import Ending, Outcome
from stoker.core.lifecycle import Event
from stoker.core.sharing.rules import Mode
from stoker.engine.admission import Admission, name_of, remedy_of
from stoker.engine.running_attempt import RunningAttempt
from stoker.store.queue_jobs import Facts

_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_LEAST_WORD = 2


class FailureLimit:
    """Counts failures and pauses projects. The jobs without a project count as one project.

    `limit` equal failures in a row pause a project; 0 means never. `most` is the total of failures
    that pauses a project, counted since its last such pause. `tell` gets what is paused, and a notice. Tasks
    of gpulimit are not counted: gpulimit never pauses.
    """

    def __init__(
        self,
        admission: Admission,
        tell: Callable[[str, str], None],
        take_back: Callable[[str | None], None],
    ) -> None:
        self._admission = admission
        self._tell = tell
        self._take_back = take_back
        self.limit = 0
        self.most: dict[str, int] = {}
        self._streaks: dict[str | None, tuple[str, int]] = {}

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Count an end, and pause the project if needed. Runs inside the engine's transaction."""
        facts = running.entry.facts
        if facts is None or facts.request.share == Mode.FREE:
            return
        project = facts.request.project
        if project in self._admission.projects_paused:
            return
        if project is not None and project in self.most and self._has_failed(running, outcome):
            self._count_all(project, outcome)
        if self.limit and project not in self._admission.projects_paused:
            self._count_in_a_row(facts, outcome)

    @staticmethod
    def _has_failed(running: RunningAttempt, outcome: Outcome) -> bool:
        """Whether a job failed by itself, and was not killed by a user."""
        overdue = outcome.event is Event.KILL and running.ending is Ending.OVERDUE
        return overdue or outcome.event in (Event.FAIL, Event.LOSE)

    def _count_all(self, project: str, outcome: Outcome) -> None:
        count = self._admission.count_failure(project)
        if count >= self.most[project]:
            self._admission.forget_failures(project)
            failed = "1 job" if count == 1 else f"{count} jobs"
            self._pause(project, f"{failed} failed, the last: {outcome.reason}")

    def _count_in_a_row(self, facts: Facts, outcome: Outcome) -> None:
        project = facts.request.project
        if outcome.event is not Event.FAIL or outcome.reason is None or outcome.failure is not None:
            if outcome.event is Event.SUCCEED:
                self._streaks.pop(project, None)
            return
        pattern = _pattern_of(outcome.reason, facts.command)
        last_pattern, count = self._streaks.get(project, ("", 0))
        count = count + 1 if last_pattern == pattern else 1
        self._streaks[project] = (pattern, count)
        if count >= self.limit:
            del self._streaks[project]
            self._pause(project, f"{count} jobs in a row failed: {outcome.reason}")

    def _pause(self, project: str | None, text: str) -> None:
        if not self._admission.has_pending(project):
            return  # no job is left that a pause could save
        self._admission.pause_project(project, text)
        self._take_back(project)
        name = name_of(project)
        self._tell(name, f"{name} paused, {text}; {remedy_of(project)} goes on")


def _pattern_of(reason: str, command: bytes) -> str:
    """Return what the reasons of one fault have in common.

    Each run has its own numbers (steps, pids, free memory), and its own words of the command line.
    """
    status, _, words = reason.partition(": ")
    line = command.decode(errors="replace")
    kept = [
        "#" if len(word) >= _LEAST_WORD and word in line else _DIGITS.sub("#", word)
        for word in words.split()
    ]
    return f"{status}: {' '.join(kept)}"
