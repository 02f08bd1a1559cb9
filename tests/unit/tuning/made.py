"""Sweeps and searches for the tests of adaptive sweeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from stoker.core.lifecycle import State, is_final, is_live
from stoker.sweeps.plan import Run, Sweep, plan_sweep
from stoker.tuning.controller import Controller, QueuedRun
from stoker.tuning.search import Search
from stoker.tuning.study import Study
from stoker.tuning.watch import Watch, mark_parked

UNIT = {"x": {"min": 0.0, "max": 1.0}}


def make_sweep(base: object, parameters: Any = UNIT, **more: Any) -> Sweep:
    """Return an adaptive sweep below a folder."""
    definition = {
        "command": "train {args}",
        "name": "s",
        "method": "tpe",
        "samples": 10,
        "metric": "loss",
        "parameters": parameters,
        **more,
    }
    return plan_sweep(
        {key: value for key, value in definition.items() if value is not None}, base=str(base)
    )


def report(folder: str, **metrics: Any) -> None:
    """Report metrics as a run does."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")


class FakeQueue:
    """A queue in memory whose jobs the test lets begin and end."""

    def __init__(self) -> None:
        self.jobs: dict[int, QueuedRun] = {}
        self.requests: dict[str, int] = {}
        self.stopped: list[tuple[int, str]] = []
        self.refusal: str | None = None  # why no run can be parked
        self.on_add: Callable[[], None] = lambda: None

    def runs(self, after: int = 0) -> list[QueuedRun]:
        found = [run for job, run in sorted(self.jobs.items()) if job > after]
        return [
            QueuedRun(run.job, run.identity, run.folder, run.state, run.params) for run in found
        ]

    def is_any_left(self) -> bool:
        states = [run.state for run in self.jobs.values()]
        return any(not is_final(state) and state is not State.SUSPENDED for state in states)

    def live(self) -> dict[int, State]:
        return {job: run.state for job, run in self.jobs.items() if is_live(run.state)}

    def state(self, job: int) -> State | None:
        return self.jobs[job].state if job in self.jobs else None

    def add(self, run: Run, request_id: str) -> int:
        if request_id not in self.requests:
            job = len(self.requests) + 1
            self.requests[request_id] = job
            self.jobs[job] = QueuedRun(job, run.identity, run.dir, State.WAITING, run.params)
        self.on_add()
        return self.requests[request_id]

    def stop(self, job: int, folder: str, reason: str, grace_s: float) -> None:
        self.stopped.append((job, reason))
        self.jobs[job].state = State.PRUNED

    def park(self, job: int, folder: str, reason: str) -> str | None:
        if self.refusal is None:
            mark_parked(folder, reason)
            self.jobs[job].state = State.SUSPENDED
        return self.refusal

    def stop_waiting(self, reason: str) -> None:
        for job, run in self.jobs.items():
            if run.state is State.WAITING:
                self.stop(job, run.folder, reason, 0.0)

    def wait(self, timeout_s: float) -> None:
        pass

    def run_all(self, loss: Callable[[dict[str, Any]], Any] | None = None) -> None:
        """Let all waiting jobs begin; with `loss` they report it and end."""
        for run in self.jobs.values():
            if run.state is State.WAITING:
                run.state = State.RUNNING
            if run.state is State.RUNNING and loss is not None:
                report(run.folder, loss=loss(run.params))
                run.state = State.DONE


class Steered:
    """A sweep with its controller on a fake queue; `restart` makes a new controller, as after a kill."""

    def __init__(self, sweep: Sweep, queue: FakeQueue | None = None) -> None:
        self.sweep = sweep
        self.queue = queue or FakeQueue()
        self.notices: list[str] = []
        self.restart()

    def restart(self, order: str = "first", **more: Any) -> None:
        """Begin with a new controller."""
        watch = Watch(self.sweep)
        self.search = None
        if self.sweep.is_adaptive:
            study = Study(self.sweep, self.notices.append)
            self.search = Search(self.sweep, study, watch, order, self.notices.append)
        more = {"notify": self.notices.append, **more}
        self.controller = Controller(self.sweep, self.queue, watch, self.search, **more)
        self.controller.begin()

    def over(self) -> bool:
        """Whether the controller has ended."""
        return self.controller.is_over

    def step(self) -> None:
        """Let the controller take in what has happened."""
        self.controller.step()

    @property
    def study(self) -> Study:
        """The study of an adaptive sweep."""
        assert self.search is not None
        return self.search.study

    def states(self) -> list[str]:
        """The states of the trials."""
        return [trial.state.name for trial in self.study._study.get_trials()]

    def values(self) -> list[Any]:
        """The values of the trials."""
        return [trial.values for trial in self.study._study.get_trials()]
