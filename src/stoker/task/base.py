"""`stoker.Task`: a run of a sweep as a class. Imports little: the process of each run imports it too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from stoker.reporting import report


class Task:
    """One run: its parameters, its folder and its work.

        class Train(stoker.Task):
            def required_env(self):
                return {"OMP_NUM_THREADS": "4"}

            def main(self):
                return {"val_acc": train(self.config["lr"], out=self.work_dir)}

        stoker.sweep(Train, {"lr": [0.1, 0.01]})

    When a run has its GPU, the sweeping process creates the Task and calls `required_env`. A fresh
    process with that GPU calls `main`. `work_dir` exists in both.
    """

    def __init__(self, config: Mapping[str, Any], work_dir: str) -> None:
        self.config = dict(config)
        self.work_dir = work_dir

    def required_env(self) -> Mapping[str, str]:
        """Return more environment variables for `main`. An exception fails only this run."""
        return {}

    def main(self) -> Any:
        """Do the work. A returned dictionary is reported as metrics, a number as the metric `value`."""
        raise NotImplementedError(f"{type(self).__qualname__} has no main(self)")


def nest(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with dotted names as nested dictionaries."""
    nested: dict[str, Any] = {}
    for name, value in params.items():
        *outer, last = name.split(".")
        target = nested
        for part in outer:
            target = target.setdefault(part, {})
        target[last] = value
    return nested


def run_function(function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Call a function with the parameters of its run."""
    _report(function(**params))


def run_task(task: Task) -> None:
    """Call a task's `main`."""
    _report(task.main())


def _report(value: Any) -> None:
    """Report what was returned: a dictionary as metrics, a number or text as the metric `value`."""
    if isinstance(value, Mapping):
        report(**value)
        return
    if value is None:
        return
    try:
        report(value=value)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ):  # the latter from arrays and tensors of several numbers
        sys.stderr.write(
            f"stoker: the returned {type(value).__name__} is not a metric: return a number or a"
            " dictionary\n"
        )
