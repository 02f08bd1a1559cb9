"""The search of an adaptive sweep: asks the study for runs, and tells it how they ended."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from stoker.core.lifecycle import State
from stoker.sweep_results.collect import read_run
from stoker.sweep_results.table import describe_reported, metric_names
from stoker.sweeps.objective import Metric
from stoker.sweeps.plan import Sweep
from stoker.tuning.study import Study
from stoker.tuning.trial import Trial
from stoker.tuning.watch import Watch


class Search:
    """Asks and tells. Every trial is told once, whatever is repeated after a crash.

    `order` identifies one order to run the sweep: failed trials of earlier orders are replaced.
    """

    def __init__(
        self, sweep: Sweep, study: Study, watch: Watch, order: str, notify: Callable[[str], None]
    ) -> None:
        self.study = study
        self.watch = watch
        self._sweep = sweep
        self._notify = notify
        self._told: set[str] = set()
        self._limit = (sweep.space.samples or 0) + study.begin_order(order)
        self.extra = (
            0  # runs that go on and are in no trial, because the study had to be made again
        )

    @property
    def left(self) -> int:
        """How many trials are still to be asked for."""
        if self.watch.reached is not None:
            return 0
        return max(0, self._limit - self.study.tally().all - self.extra)

    def ask(self) -> Trial:
        """Begin a trial; the caller queues its run and then calls `note_job` of the study."""
        return self.study.ask()

    def end(self, trial: Trial, state: State) -> None:
        """Tell the study how the run of a trial ended."""
        self.watch.end(trial.run.id)
        if state is State.DONE:
            values = self._read_values(trial.run.dir, trial.run.id)
        elif state is State.PRUNED:
            known = self._finite(trial)
            self.study.prune(trial.number, known[-1] if known else None, len(known))
            return
        else:
            values = None
        values = values or self._impute(trial)
        if values is None:
            self.study.fail(trial.number)
        else:
            self.study.complete(trial.number, values)

    def enter(self, params: dict[str, Any], folder: str) -> None:
        """Tell the study of a run that has succeeded in no trial of its own, as after a retry."""
        values = self._read_values(folder, os.path.basename(folder))
        if values is not None:
            self.study.enter(params, values)

    def _read_values(self, folder: str, run: str) -> list[float] | None:
        """Return the values of a run that has succeeded; None, with a notice, if they are unusable."""
        found = [self._read_value(folder, metric) for metric in self._sweep.metrics]
        for metric, value in zip(self._sweep.metrics, found, strict=True):
            problem = self._problem(metric, value, folder, run)
            if problem is not None:
                kind, text = problem
                if kind not in self._told:
                    self._told.add(kind)
                    self._notify(f"sweep {self._sweep.name}: {text}")
                return None
        return [float(value) for value in found]

    @staticmethod
    def _read_value(folder: str, metric: Metric) -> Any:
        regex = None if metric.regex is None else re.compile(metric.regex.encode())
        return read_run(folder, metric.name, regex).metrics.get(metric.name)

    def _problem(self, metric: Metric, value: Any, folder: str, run: str) -> tuple[str, str] | None:
        """Return what is wrong with a value: a word, and a line for the user."""
        name = metric.name
        if value is None:
            if self.study.tally().complete:
                return "missing", f"run {run} has not reported {name}: it counts as failed"
            told = f"no run has reported {name}, so parameters are chosen at random until one does"
            instead = describe_reported(metric_names([read_run(folder)]), name)
            return "never", f"{told}: {_example(name)} (run {run} {instead})"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return (
                "text",
                f"run {run} reported {name} {value!r}, which is no number: it counts as failed",
            )
        if math.isnan(value):
            return "nan", f"run {run} reported {name} nan: runs like it count as failed"
        return None

    def _finite(self, trial: Trial) -> list[float]:
        return [value for value in self.watch.values(trial.run.id) if math.isfinite(value)]

    def _impute(self, trial: Trial) -> list[float] | None:
        """Return the values that stand for those of a failed run; None if the sweep asks for none."""
        found = []
        for place, metric in enumerate(self._sweep.metrics):
            known = self._finite(trial) if place == 0 else []
            value = _impute(metric, known, [values[place] for values in self.study.values()])
            if value is None:
                return None
            found.append(value)
        return found


def _impute(metric: Metric, own: Sequence[float], all_values: Sequence[float]) -> float | None:
    best, worst = (max, min) if metric.is_maximized else (min, max)
    match metric.impute:
        case "worst":
            return worst([*own, *all_values], default=None)
        case "best":
            return best(own, default=None)
        case "latest":
            return own[-1] if own else None
    return None


def _example(name: str) -> str:
    """Return the call that reports a metric."""
    argument = f"{name}=…" if name.isidentifier() else f"**{{{name!r}: …}}"
    return f"stoker.report(step, {argument})"
