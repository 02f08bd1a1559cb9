"""The runs of one sweep in the daemon's queue, as the controller of the sweep sees them."""

from __future__ import annotations

import os
import queue
import threading

import msgspec

from stoker.client.client import Client
from stoker.client.transport import BrokenError
from stoker.core.lifecycle import State, is_final, is_live
from stoker.errors import NotFoundError, StokerError
from stoker.sweeps.plan import Run
from stoker.sweeps.queueing import job_of
from stoker.tuning.controller import QueuedRun
from stoker.tuning.watch import mark_parked, request_stop, unmark_parked
from stoker.wire import JobEvent, Prune, Selection, Submission, Suspend, SweepRun, from_wire

_LIVE = [state for state in State if is_live(state)]


class SweepQueue:
    """Adds and stops runs, and tells their states."""

    def __init__(self, client: Client, cwd: str, submission: Submission) -> None:
        assert submission.sweep is not None
        self._client = client
        self._cwd = cwd
        self._submission = submission
        self._name = submission.sweep
        self._events = _Events(client.home)

    def runs(self, after: int = 0) -> list[QueuedRun]:
        """Return all runs of the sweep with jobs after this one, the oldest first."""
        found = self._client.sweep(self._name, self._cwd, params=True, after=after)
        return [_queued(run) for run in found]

    def is_any_left(self) -> bool:
        """Whether a run of the sweep has not ended and is not suspended."""
        runs = self._client.sweep(self._name, self._cwd)
        return any(not is_final(run.state) and run.state is not State.SUSPENDED for run in runs)

    def live(self) -> dict[int, State]:
        """Return the states of the jobs of this project that have a process or are being started."""
        try:
            project = self._submission.project
            found = self._client.jobs(Selection(project=project, states=_LIVE))
            return {job.id: job.state for job in found}
        except NotFoundError:
            return {}  # no job of this project yet

    def state(self, job: int) -> State | None:
        """Return the state of one job; None if it was removed."""
        try:
            [found] = self._client.ls(Selection(ids=str(job))).jobs
        except NotFoundError:
            # A run that has succeeded is known when its job is gone.
            after = next(self._client.sweep(self._name, self._cwd, after=job - 1), None)
            return after.state if after is not None and after.job == job else None
        return found.state

    def add(self, run: Run, request_id: str) -> int:
        """Queue a run and return its job; a repeated request id adds nothing."""
        order = msgspec.structs.replace(self._submission, request_id=request_id, jobs=[job_of(run)])
        [added] = self._client.add(order)
        return added.first

    def stop(self, job: int, folder: str, reason: str, grace_s: float) -> None:
        """Let a run end early."""
        self._prune(reason, grace_s, [job])
        request_stop(folder)

    def park(self, job: int, folder: str, reason: str) -> str | None:
        """Suspend a run to host RAM; return why not, None if it is."""
        try:
            mark_parked(folder, reason)
        except OSError as error:
            return f"cannot write to {folder}: {error.strerror}"
        try:
            changed = self._client.suspend(Suspend(ids=str(job), parked=True))
        except BrokenError:
            raise  # it may be suspended: the next controller finds out
        except Exception:
            unmark_parked(folder)
            raise
        if job in changed.ids:
            return None
        unmark_parked(folder)
        return "; ".join(refused.reason for refused in changed.refused) or f"job {job} has gone"

    def stop_waiting(self, reason: str) -> None:
        """End all runs that have not begun."""
        self._prune(reason, 0.0, None)

    def _prune(self, reason: str, grace_s: float, jobs: list[int] | None) -> None:
        self._client.prune(
            Prune(name=self._name, cwd=self._cwd, jobs=jobs, reason=reason, grace_s=grace_s)
        )

    def wait(self, timeout_s: float) -> None:
        """Wait until something happens to jobs, at most for so long."""
        self._events.wait(timeout_s)


class _Events:
    """Wakes up when the state of a job changes. Raises in `wait` if the daemon has gone."""

    def __init__(self, home: str) -> None:
        self._queue: queue.SimpleQueue[StokerError | None] = queue.SimpleQueue()
        self._client = Client(home, restart=False)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for event in self._client.events():
                if isinstance(event, JobEvent):
                    self._queue.put(None)
            self._queue.put(StokerError("the daemon has gone"))
        except StokerError as error:
            self._queue.put(error)

    def wait(self, timeout_s: float) -> None:
        try:
            event = self._queue.get(timeout=timeout_s)
            while True:
                if event is not None:
                    raise event
                event = self._queue.get_nowait()
        except queue.Empty:
            return


def _queued(run: SweepRun) -> QueuedRun:
    params = {} if run.params is None else msgspec.json.decode(run.params)
    return QueuedRun(run.job, run.identity, os.fsdecode(from_wire(run.dir)), run.state, params)
