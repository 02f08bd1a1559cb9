"""The controller of a sweep: queues its next runs, stops runs early, and ends with the sweep.

It can be killed at any moment. Its state is in the study, in the queue and in the folders of the runs; a new
controller goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stoker.core.lifecycle import State, is_final, is_live
from stoker.failpoints import reach
from stoker.store.job_queries import TRIAL
from stoker.sweep_results.collect import read_run
from stoker.sweep_results.table import describe_reported, metric_names
from stoker.sweeps.plan import Run, Sweep
from stoker.tuning.trial import Trial
from stoker.tuning.watch import Watch, was_parked

if TYPE_CHECKING:
    from stoker.tuning.search import Search

_LOOK_S = 1.0  # between two looks at the reports of runs
_CHECK_S = 5.0  # between two looks at the queue if nothing happens
_WAITING = 1  # runs that are queued ahead, so that no GPU waits for the next one


class QueuedRun(msgspec.Struct):
    """A run of the sweep that is, or was, in the queue; `trial` if it belongs to one that has not ended."""

    job: int
    identity: str
    folder: str
    state: State
    params: dict[str, Any]
    trial: Trial | None = None
    is_stopped: bool = False
    was_parked: bool = False

    @property
    def id(self) -> str:
        """The name of its folder."""
        return os.path.basename(self.folder)

    @property
    def has_begun(self) -> bool:
        """Whether it has, or may have, a process."""
        return is_live(self.state)


class RunQueue(Protocol):
    """Where the runs of the sweep wait and run."""

    def runs(self, after: int = 0) -> list[QueuedRun]:
        """Return all runs of the sweep with jobs after this one, the oldest first."""

    def is_any_left(self) -> bool:
        """Whether a run of the sweep has not ended and is not suspended."""

    def live(self) -> dict[int, State]:
        """Return the states of the jobs that have a process or are being started."""

    def state(self, job: int) -> State | None:
        """Return the state of one job; None if it was removed."""

    def add(self, run: Run, request_id: str) -> int:
        """Queue a run and return its job; a repeated request id adds nothing."""

    def stop(self, job: int, folder: str, reason: str, grace_s: float) -> None:
        """Let a run end early."""

    def park(self, job: int, folder: str, reason: str) -> str | None:
        """Suspend a run to host RAM; return why not, None if it is."""

    def stop_waiting(self, reason: str) -> None:
        """End all runs that have not begun."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something happens to jobs, at most for so long."""


class Controller:
    """Steers one sweep. Without `search` it watches runs that are queued already.

    With `closed` it begins no more runs, and ends when those that go on have ended. With `resumed` an earlier
    controller has judged the runs that go on.
    """

    def __init__(
        self,
        sweep: Sweep,
        queue: RunQueue,
        watch: Watch,
        search: Search | None = None,
        *,
        notify: Callable[[str], None] = lambda _text: None,
        closed: bool = False,
        resumed: bool = False,
    ) -> None:
        self._sweep = sweep
        self._queue = queue
        self._watch = watch
        self._search = search
        self._notify = notify
        self._cannot_park = False
        self._has_told_end = False
        self._has_told_unreported = False
        self._closed = closed
        self._resumed = resumed
        self._known: dict[int, QueuedRun] = {}
        self._followed: dict[int, QueuedRun] = {}
        self._last_job = 0

    @property
    def jobs(self) -> list[int]:
        """The jobs of runs that have not ended."""
        return list(self._followed)

    @property
    def is_over(self) -> bool:
        """Whether no run goes on and none is to begin."""
        if self._followed or self._left:
            return False
        return self._search is not None or not self._queue.is_any_left()

    @property
    def _left(self) -> int:
        if self._closed or self._search is None or self._watch.reached is not None:
            return 0
        return self._search.left

    def begin(self) -> None:
        """Find out how the runs stand, complete what a killed controller left undone, and queue the first."""
        listed = self._list_new()
        if self._watch.reads_always:
            for run in listed:
                self._watch.begin(run.id, run.folder, is_judged=self._resumed)
                if not run.has_begun:
                    self._watch.end(run.id)
        if self._search is not None:
            self._recover_trials(self._search, listed)
        self.step()

    def run(self) -> None:
        """Steer until the sweep is over."""
        while not self.is_over:
            self._queue.wait(_LOOK_S if self._watch.reads_always else _CHECK_S)
            self.step()

    def step(self) -> None:
        """Take in what has happened, and do what follows from it."""
        self._update()
        for run, reason in self._watch.judge().items():
            self._stop(run, reason)
        if self._watch.reached is not None:
            self._tell_end(self._watch.reached)
            if self._has_waiting():
                self._queue.stop_waiting(self._watch.reached)
        if self._search is not None:
            while self._left and not self._has_waiting():
                self._add(self._search, self._search.ask())

    def _has_waiting(self) -> bool:
        if self._search is None:
            return self._queue.is_any_left()
        waiting = sum(not run.has_begun for run in self._followed.values())
        return waiting >= _WAITING

    def _list_new(self) -> list[QueuedRun]:
        listed = self._queue.runs(self._last_job)
        self._known.update((run.job, run) for run in listed)
        self._last_job = max([self._last_job, *(run.job for run in listed)])
        return listed

    def _recover_trials(self, search: Search, listed: list[QueuedRun]) -> None:
        """Join the live trials of the study with the runs in the queue."""
        by_identity = {run.identity: run for run in listed}
        if search.study.was_unreadable:
            self._enter_again(search, listed)
        for trial in search.study.live():
            run = by_identity.get(trial.run.identity)
            if run is not None and trial.job is None:
                search.study.note_job(trial, run.job)
            if run is not None and is_final(run.state):
                search.end(trial, run.state)
            elif run is not None and _is_parked(run):
                search.end(trial, State.PRUNED)
            elif run is not None:
                run.trial = trial
                self._follow(run)
            elif trial.job is None and not self._closed and self._watch.reached is None:
                self._add(search, trial)
            else:
                search.end(trial, State.KILLED)  # its job was removed, or is not wanted any more

    def _enter_again(self, search: Search, listed: list[QueuedRun]) -> None:
        """Fill a new study from the runs: those that have ended now, the others when they end."""
        for run in listed:
            if not is_final(run.state):
                self._follow(run)
            elif run.state is State.DONE:
                search.enter(run.params, run.folder)

    def _follow(self, run: QueuedRun) -> None:
        self._followed[run.job] = run
        self._watch.begin(run.id, run.folder)
        run.was_parked = was_parked(run.folder)
        if self._search is not None and run.trial is None and not run.was_parked:
            self._search.extra += 1

    def _add(self, search: Search, trial: Trial) -> None:
        reach("trial-asked")
        job = self._queue.add(trial.run, f"{TRIAL}{search.study.key}-{trial.number}")
        reach("trial-queued")
        own = trial.run
        run = QueuedRun(job, own.identity, own.dir, State.WAITING, own.params, trial)
        self._known[job] = run
        self._last_job = max(self._last_job, job)
        self._follow(run)
        search.study.note_job(trial, job)

    def _update(self) -> None:
        live = self._queue.live()
        if not live.keys() <= self._known.keys():
            self._list_new()
        for job in live.keys() - self._followed.keys():
            run = self._known.get(job)
            if run is None:
                continue  # it is no run of this sweep
            run.state = live[job]
            if not _is_parked(run):
                self._follow(run)
        for job in list(self._followed):
            run = self._followed[job]
            run.state = live.get(job) or self._queue.state(job) or State.KILLED
            if is_final(run.state):
                del self._followed[job]
                self._end(run)
            elif run.trial is not None and _is_parked(run):
                self._let_go(run)  # an earlier controller was killed while it was being parked

    def _end(self, run: QueuedRun) -> None:
        self._watch.end(run.id)
        trial, run.trial = run.trial, None
        if self._search is None:
            self._check_reported(run)
            return
        if (
            trial is not None
        ):  # also of a run with the mark: its controller was killed before it was parked
            self._search.end(trial, run.state)
            reach("trial-told")
            return
        if run.was_parked:
            return
        self._search.extra -= 1
        if run.state is State.DONE:
            self._search.enter(run.params, run.folder)

    def _tell_end(self, reached: str) -> None:
        if not self._has_told_end:
            self._has_told_end = True
            self._notify(f"sweep {self._sweep.name} begins no more runs: {reached}")

    def _check_reported(self, run: QueuedRun) -> None:
        """Tell once that a run has succeeded without a value of the metric: its name may be wrong."""
        metric = self._sweep.metric
        if self._has_told_unreported or metric is None or run.state is not State.DONE:
            return
        if not self._watch.values(run.id):
            self._has_told_unreported = True
            instead = describe_reported(metric_names([read_run(run.folder)]), metric.name)
            self._notify(
                f"sweep {self._sweep.name}: run {run.id} has not reported {metric.name}, so no rule can"
                f" compare it; it {instead}"
            )

    def _stop(self, run_id: str, reason: str) -> None:
        rule = self._sweep.stop_rule
        assert rule is not None
        for run in list(self._followed.values()):
            if run.id == run_id and not run.is_stopped:
                run.is_stopped = True
                if not (rule.park and self._park(run, reason)):
                    self._queue.stop(run.job, run.folder, reason, rule.grace_s)

    def _park(self, run: QueuedRun, reason: str) -> bool:
        """Suspend a run, and follow it no more; False if it cannot be suspended."""
        refusal = self._queue.park(run.job, run.folder, reason)
        if refusal is None:
            self._let_go(run)
        elif not self._cannot_park:
            self._cannot_park = True
            self._notify(f"sweep {self._sweep.name}: a run is ended and not parked: {refusal}")
        return refusal is None

    def _let_go(self, run: QueuedRun) -> None:
        """Follow a run that is parked no more."""
        del self._followed[run.job]
        self._watch.end(run.id)
        trial, run.trial = run.trial, None
        if self._search is not None and trial is not None:
            self._search.end(trial, State.PRUNED)


def _is_parked(run: QueuedRun) -> bool:
    return run.state is State.SUSPENDED and was_parked(run.folder)
