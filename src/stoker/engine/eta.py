"""Estimates how long jobs take, from the measured durations of their kind."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from msgspec.structs import astuple

from stoker.core.job import Outcome
from stoker.core.kind import kind_of
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate
from stoker.engine.launch_spec import split_words
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.sharing_forecast import Expected, Forecast
from stoker.engine.slots import SlotTable
from stoker.engine.start_forecast import PlannedStart, plan_starts
from stoker.engine.what_if import Foretold, Like, Outlook, Supposed, foretell
from stoker.store.database import Database
from stoker.store.duration_records import (
    LearnedDuration,
    forget_duration,
    read_durations,
    record_duration,
)
from stoker.store.job_queries import WaitingJob, first_waiting
from stoker.store.queue_jobs import Facts, QueueJobs

_LEAST_S = 1.0  # shorter jobs are many, and need no estimate
_MEMORY = 20
_KINDS = 2000
_LOOKED_AT = 500
_FRESH_S = 1.0
_PLANNED = 60  # waiting jobs whose starts are foretold
_SIMULATED = 40  # waiting jobs in a simulation, which takes some milliseconds
_MAX_LOAD = 0.01  # part of the time spent on estimates, however often a client asks
_HEAD_BYTES = 500


class Eta:
    """Learns the mean duration of each kind of job, and estimates with it.

    With a `forecast`, the estimate includes jobs that share GPUs.
    """

    def __init__(
        self,
        database: Database,
        jobs: QueueJobs,
        slot_table: SlotTable,
        forecast: Forecast | None = None,
    ) -> None:
        self._forecast = forecast
        self._database = database
        self._jobs = jobs
        self._slot_table = slot_table
        self._known = read_durations(database)
        self._queue: tuple[float, float | None] | None = None  # valid until, and the estimate
        self._planned: tuple[float, list[PlannedStart]] | None = None  # the same of starts

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Learn from a job that has succeeded. Runs inside the engine's transaction."""
        started, facts = running.started_at_us, running.entry.facts
        if not outcome.is_success or started is None or facts is None:
            return
        took_s = time.time() - started / 1e6 - running.paused_s
        if took_s < _LEAST_S:
            return
        kind = kind_of_facts(facts)
        known = self._known.pop(kind, LearnedDuration(0, 0.0))
        count = min(known.jobs + 1, _MEMORY)
        mean_s = known.mean_s + (took_s - known.mean_s) / count
        self._remember(kind, LearnedDuration(count, mean_s))

    def expected_s(self, facts: Facts) -> float | None:
        """The whole duration of a job; None if nothing is known of its kind."""
        known = self._known.get(kind_of_facts(facts))
        return None if known is None else known.mean_s

    def left_s(self, running: RunningAttempt) -> float | None:
        """The remaining duration of a running job; None if nothing is known of its kind."""
        facts, started = running.entry.facts, running.started_at_us
        expected_s = None if facts is None else self.expected_s(facts)
        if expected_s is None or started is None:
            return None
        return max(0.0, expected_s - (time.time() - started / 1e6 - running.paused_s))

    def queue_s(self) -> float | None:
        """Seconds until all running and waiting jobs have ended; None if nothing is known.

        Reads only the first jobs of a long queue, and assumes that the others are like them.
        """
        now = time.monotonic()
        if self._queue is None or now > self._queue[0]:
            found = self._estimate() if self._known else None
            took_s = time.monotonic() - now
            self._queue = (now + max(_FRESH_S, took_s / _MAX_LOAD), found)
        return self._queue[1]

    def planned_starts(self) -> list[PlannedStart]:
        """Return when the first waiting jobs are expected to start and end, and where, in queue order.

        Empty while nothing is known of how long jobs take.
        """
        now = time.monotonic()
        if self._planned is None or now > self._planned[0]:
            found = self._plan_starts() if self._known else []
            took_s = time.monotonic() - now
            self._planned = (now + max(_FRESH_S, took_s / _MAX_LOAD), found)
        return self._planned[1]

    def _plan_starts(self) -> list[PlannedStart]:
        outlook = self._look_ahead()
        return plan_starts(outlook.waiting, outlook.running, self._slot_table, self._forecast)

    def what_if(self, supposed: Supposed) -> Foretold | None:
        """Return how jobs that are not in the queue would run; None if nothing is known of their duration."""
        outlook = self._look_ahead(supposed.run_s)
        if self._forecast is not None:
            self._forecast.suppose(supposed.facts)
        run_s, like = self._duration_of(supposed, outlook.usual_s)
        if run_s is None or like is None:
            return None
        more = self._jobs.count(State.WAITING) / len(outlook.waiting) if outlook.waiting else 1.0
        if more > 1:  # only the first jobs are simulated: each stands for several
            longer = [Expected(job.candidate, job.seconds * more) for job in outlook.waiting]
            outlook = outlook._replace(waiting=longer)
        return foretell(
            supposed,
            run_s,
            like,
            outlook,
            lambda jobs: plan_starts(jobs, outlook.running, self._slot_table, self._forecast),
        )

    def _duration_of(
        self, supposed: Supposed, usual_s: float | None
    ) -> tuple[float | None, Like | None]:
        if supposed.run_s is not None:
            return supposed.run_s, "given"
        candidate, words = supposed.candidate, supposed.facts.words
        known = self._known.get(kind_of(candidate.project, supposed.name, words))
        if known is not None:
            lone_s = self._forecast.lone_s(candidate) if self._forecast else None
            return lone_s or known.mean_s, "kind"
        program = kind_of(None, None, words)
        alike = [each.mean_s for kind, each in self._known.items() if kind.endswith(program)]
        if alike:
            return sum(alike) / len(alike), "program"
        return usual_s, None if usual_s is None else "any"

    def _look_ahead(self, usual_s: float | None = None) -> Outlook:
        """Return how long the first waiting jobs, and those that run, are expected to take.

        `usual_s` is the time of a job while nothing is known of any.
        """
        head = first_waiting(self._database, _PLANNED, _HEAD_BYTES)
        expected = [
            self._known.get(_kind_of(job.needs.project, job.name, job.command_head, job.form))
            for job in head
        ]
        usual = [found.mean_s for found in expected if found]
        if self._known:
            usual_s = sum(usual) / len(usual) if usual else self._mean_s()
        if usual_s is None:
            return Outlook([], [], None)
        waiting = []
        for job, found in zip(head, expected, strict=True):
            candidate = Candidate(*astuple(job.needs), id=job.id, priority=job.priority)
            lone_s = self._forecast.lone_s(candidate) if self._forecast and found else None
            took_s = lone_s or (found.mean_s if found else usual_s)
            waiting.append(Expected(candidate, took_s))
        running = [
            (each, self.left_s(each)) for each in self._slot_table.running.values() if each.slots
        ]
        known = [(each, usual_s if left is None else left) for each, left in running]
        return Outlook(waiting, known, usual_s)

    def _mean_s(self) -> float:
        return sum(known.mean_s for known in self._known.values()) / len(self._known)

    def _estimate(self) -> float | None:
        head = first_waiting(self._database, _LOOKED_AT, _HEAD_BYTES)
        expected = [
            self._known.get(_kind_of(job.needs.project, job.name, job.command_head, job.form))
            for job in head
        ]
        known_s = [found.mean_s for found in expected if found]
        left_s = [(r, self.left_s(r)) for r in self._slot_table.running.values()]
        if not known_s and all(seconds is None for _running, seconds in left_s):
            return None
        usual_s = sum(known_s) / len(known_s) if known_s else 0.0
        work = {True: 0.0, False: 0.0}  # of jobs with GPUs and without, in seconds of a slot
        for job, found in zip(head, expected, strict=True):
            slots = job.needs.slots
            work[slots > 0] += (found.mean_s if found else usual_s) * max(1, slots)
        more = max(1.0, self._jobs.count(State.WAITING) / len(head)) if head else 1.0
        work = {kind: seconds * more for kind, seconds in work.items()}
        for running, seconds in left_s:
            with_gpu = bool(running.slots) or running.is_claimed_ahead
            work[with_gpu] += (seconds or 0.0) * max(1, len(running.slots))
        open_slots, places = self._slot_table.count_open(), self._slot_table.cpu_places
        gpu_s = self._estimate_sharing(head, expected, left_s, usual_s)
        if gpu_s is None:
            gpu_s = work[True] / max(1, open_slots)
        return max(gpu_s, work[False] / max(1, places))

    def _estimate_sharing(
        self,
        head: list[WaitingJob],
        expected: list[LearnedDuration | None],
        left_s: list[tuple[RunningAttempt, float | None]],
        usual_s: float,
    ) -> float | None:
        """Seconds until the GPUs are free, by simulation; None if no job shares a GPU."""
        forecast = self._forecast
        if forecast is None:
            return None
        step = math.ceil(len(head) / _SIMULATED) or 1
        jobs = [
            Expected(running.entry.candidate, seconds or 0.0)
            for running, seconds in left_s
            if running.entry.candidate is not None and running.slots
        ]
        waiting = [
            (Candidate(*astuple(job.needs), id=job.id), found)
            for job, found in zip(head[::step], expected[::step], strict=True)
            if job.needs.slots
        ]
        if not forecast.concerns(
            [*(job.candidate for job in jobs), *(each[0] for each in waiting)]
        ):
            return None
        for candidate, found in waiting:
            # The mean includes runs that were slowed by sharing.
            lone_s = forecast.lone_s(candidate) if found else None
            jobs.append(Expected(candidate, lone_s or (found.mean_s if found else usual_s)))
        looked_at = max(1, len(head[::step]))
        return forecast.seconds(jobs) * max(1.0, self._jobs.count(State.WAITING) / looked_at)

    def _remember(self, kind: str, learned: LearnedDuration) -> None:
        self._known[kind] = learned
        record_duration(self._database, kind, learned)
        while len(self._known) > _KINDS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            forget_duration(self._database, oldest)


def kind_of_facts(facts: Facts) -> str:
    """Return the kind of a job."""
    return _kind_of(facts.request.project, facts.name, facts.command[:_HEAD_BYTES], facts.form)


def _kind_of(project: str | None, name: str | None, command: bytes, form: str | None) -> str:
    words: Iterable[bytes] = split_words(command) if form == "argv" else command.split()
    return kind_of(project, name, [word.decode("utf-8", "replace") for word in words])
