"""`stoker.Task`: a run of a sweep as a class. Light, for the fresh process imports it too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stoker.reporting import report


class Task:
    """One run: its parameters, its folder, and what it does with them.

        class Train(stoker.Task):
            def required_env(self):
                return {"OMP_NUM_THREADS": "4"}

            def main(self):
                return {"val_acc": train(self.config["lr"], out=self.work_dir)}

        stoker.sweep(Train, {"lr": [0.1, 0.01]})

    It is made and asked for `required_env` in the process that sweeps, once it has its GPU; `main` is
    called in a fresh process with that GPU. `work_dir` exists in both.
    """

    def __init__(self, config: Mapping[str, Any], work_dir: str) -> None:
        self.config = dict(config)
        self.work_dir = work_dir

    def required_env(self) -> Mapping[str, str]:
        """More of an environment for `main`; an exception fails this run alone."""
        return {}

    def main(self) -> Any:
        """Do the work; a dictionary that is returned is reported as metrics."""
        raise NotImplementedError(f"{type(self).__qualname__} has no main(self)")


def nest(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with dotted names as dictionaries inside of each other."""
    nested: dict[str, Any] = {}
    for name, value in params.items():
        *outer, last = name.split(".")
        inside = nested
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return nested


def run_function(function: Callable[..., Any], params: Mapping[str, Any]) -> None:
    """Call a function with the parameters of its run."""
    _report(function(**params))


def run_task(task: Task) -> None:
    """Do a task's work."""
    _report(task.main())


def _report(value: Any) -> None:
    if isinstance(value, Mapping):
        report(**value)
