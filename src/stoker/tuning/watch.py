"""Watches the reports of a sweep's runs: which runs are to be stopped, and whether the target is reached."""

from __future__ import annotations

import contextlib
import math
import os
import re

from stoker.core.early_stopping import EarlyStopping
from stoker.engine.run_folder import PARKED
from stoker.reporting import STOP
from stoker.sweeps.plan import Sweep
from stoker.tuning.metric_tail import MetricTail


def request_stop(folder: str) -> None:
    """Let `stoker.report` of a run answer that the run should stop."""
    with contextlib.suppress(OSError):
        os.close(
            os.open(os.path.join(folder, STOP), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        )


def mark_parked(folder: str, reason: str) -> None:
    """Record that a run was suspended because it is worse than others: it is the user's from then on."""
    with open(os.path.join(folder, PARKED), "w", encoding="utf-8") as file:
        file.write(f"{reason}\n")


def unmark_parked(folder: str) -> None:
    """Take the record back: the run could not be suspended."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, PARKED))


def was_parked(folder: str) -> bool:
    """Whether this attempt of a run was suspended because it is worse than others."""
    return os.path.exists(os.path.join(folder, PARKED))


class Watch:
    """Follows runs by their ids. Runs that have ended are still compared with."""

    def __init__(self, sweep: Sweep) -> None:
        self._metric = sweep.metric
        self._rule = None
        self._regex: re.Pattern[bytes] | None = None
        if self._metric is not None:
            if sweep.stop_rule is not None:
                self._rule = EarlyStopping(sweep.stop_rule, maximize=self._metric.is_maximized)
            if self._metric.regex is not None:
                self._regex = re.compile(self._metric.regex.encode())
        self._tails: dict[str, MetricTail] = {}
        self._values: dict[str, list[float]] = {}
        self._stopped: set[str] = set()
        self.reached: str | None = None
        """How the target was reached; None if it was not."""

    @property
    def reads_always(self) -> bool:
        """Whether reports matter before their runs end."""
        has_target = self._metric is not None and self._metric.target is not None
        return self._rule is not None or has_target

    def begin(self, run: str, folder: str, *, is_judged: bool = False) -> None:
        """Follow a run; one that an earlier controller has judged is not judged again for its past."""
        if self._metric is None or run in self._tails:
            return
        self._tails[run] = MetricTail(folder, self._metric.name, self._regex)
        self._values[run] = []
        if was_parked(folder):
            self._stopped.add(run)  # the user has resumed it
        else:
            self._stopped.discard(run)
        if self._rule is not None:
            self._rule.cut(run, 0)  # a run that is run again
        if is_judged:
            self._read(run)
            if self._rule is not None:
                self._rule.admit(run)

    def end(self, run: str) -> None:
        """Read what is left of the reports of a run, and follow it no more."""
        if run in self._tails:
            self._read(run, is_last=True)
            del self._tails[run]

    def values(self, run: str) -> list[float]:
        """Return the values of the metric that a run has reported."""
        return self._values.get(run, [])

    def judge(self) -> dict[str, str]:
        """Read the reports of all runs that go on; return which to stop, and why. Each is named once."""
        for run in self._tails:
            self._read(run)
        if self._rule is None:
            return {}
        found = {}
        for run in self._tails:
            reason = None if run in self._stopped else self._rule.judge(run)
            if reason is not None:
                found[run] = f"{self._metric.name if self._metric else ''} {reason}"
        self._stopped.update(found)
        return found

    def _read(self, run: str, *, is_last: bool = False) -> None:
        kept, values = self._tails[run].read(is_last=is_last)
        known = self._values[run]
        if kept < len(known):
            del known[kept:]
            if self._rule is not None:
                self._rule.cut(run, sum(map(math.isfinite, known)))
        known += values
        for value in values:
            if self._rule is not None:
                self._rule.report(run, value)
            self._check_target(run, value)

    def _check_target(self, run: str, value: float) -> None:
        metric = self._metric
        is_open = self.reached is None and metric is not None and math.isfinite(value)
        if is_open and metric is not None and metric.reaches_target(value):
            self.reached = (
                f"{metric.name} {value:g} of run {run} reaches the target {metric.target:g}"
            )
