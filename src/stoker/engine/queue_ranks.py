"""Keeps the ranks of waiting jobs in the configured order: by age, or by expected run time."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time

import msgspec

from stoker.core.job import Outcome
from stoker.core.queue_rank import SHORTEST, shortest_first_rank
from stoker.core.run_times import RunTimes, is_surprise, usual_s
from stoker.core.sharing.parameters import CommandFacts, Params, template_of
from stoker.engine.launch_spec import split_words
from stoker.engine.running_attempt import RunningAttempt
from stoker.errors import StokerError
from stoker.store.database import Database
from stoker.store.queue_jobs import QueueJobs
from stoker.store.rank_records import RankedJob, RankRecords

_LEAST_S = 1.0  # with fifo, shorter runs are not learned: they are many
_SLICE = 300
_AGE_SLICE = 5000  # ids
_AT_ONCE = 2000  # waiting jobs that are sorted before `stoker config order` answers
_REST = 4.0  # pause after a slice, as a multiple of the time that it took
_LONG_REST = 49.0  # where a known run time only changes: runs may differ each time
_FULL_DISK_S = 1.0
_NOTHING_KNOWN_S = 3600.0


class QueueRanks:
    """Learns run times, and ranks jobs when they are added and when a run took an unexpected time.

    A large queue is ranked in slices, so that the engine plans turns between them. A database that was
    left in the middle is finished by the next daemon.
    """

    def __init__(self, database: Database, jobs: QueueJobs, order: str) -> None:
        self._database = database
        self._jobs = jobs
        self._records = RankRecords(database)
        self._known = self._records.run_times()
        self._used = dict(self._known)  # the run times that the ranks were computed from
        self._usual_s = usual_s(self._used.values()) or _NOTHING_KNOWN_S
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._position: int | None = None  # ids up to this one are ranked; None: all are
        self._is_again = False  # another pass has to follow
        self._rest = _REST
        self._timer: asyncio.TimerHandle | None = None
        if self._is_by_run_time or self._records.are_by_run_time:
            self._begin()

    @property
    def _is_by_run_time(self) -> bool:
        return self._order == SHORTEST

    @property
    def is_settled(self) -> bool:
        """Whether all ranks are in the configured order."""
        return self._position is None

    def use(self, order: str) -> None:
        """Rank all jobs in another order; discards moves. A large queue is finished in the background."""
        if order == self._order:
            return
        with self._database.transaction():
            self._records.forget_moves()
            if order == SHORTEST:
                self._records.mark_by_run_time(yes=True)
        self._order = order
        self._position, self._is_again, self._rest = 0, False, _REST
        self._refresh()
        for _ in range(0, _AT_ONCE, _SLICE):
            if self.is_settled:
                return
            self._rank_slice()
        self._continue_in(0.0)

    def place(self, first: int, last: int) -> None:
        """Rank jobs that wait anew, inside a transaction."""
        if self._is_by_run_time:
            self._rank(self._records.between(first, last))

    def on_end(self, running: RunningAttempt, outcome: Outcome) -> None:
        """Learn from a job that has succeeded. Runs inside the engine's transaction."""
        started = running.started_at_us
        if not outcome.is_success or started is None:
            return
        now_s = time.time()
        took_s = now_s - started / 1e6 - running.paused_s
        if took_s < 0.0 or (took_s < _LEAST_S and not self._is_by_run_time):
            return
        job = self._records.one(running.attempt.job)
        if job is None:
            return
        kind, params = _kind_of(job)
        expected_s = self._expected_s(kind, params)
        learned = self._known.get(kind, RunTimes()).learn(params, took_s, now_s)
        self._records.learn(kind, learned, self._known)
        if is_surprise(expected_s, took_s):
            self._used[kind] = learned
            self._refresh()
            if self._is_by_run_time:
                self._begin(_REST if expected_s is None else _LONG_REST)

    def expected_s(self, job: int) -> float | None:
        """The run time by which a job is ranked; None if jobs are ranked by age."""
        found = self._records.one(job) if self._is_by_run_time else None
        return None if found is None else self._expected_s(*_kind_of(found)) or self._usual_s

    def finish(self) -> None:
        """Rank all that is left to be ranked."""
        while not self.is_settled:
            self._rank_slice()

    def close(self) -> None:
        """Stop the work in the background."""
        if self._timer is not None:
            self._timer.cancel()

    def _refresh(self) -> None:
        """Follow the median of the known run times if it has changed much."""
        for kind in self._used.keys() - self._known.keys():
            del self._used[kind]
        found = usual_s(self._used.values())
        if found is not None and is_surprise(self._usual_s, found):
            self._usual_s = found

    def _begin(self, rest: float = _REST) -> None:
        """Begin a pass over all jobs, or let one follow the present one."""
        if self._position is not None:
            self._is_again, self._rest = True, min(rest, self._rest)
            return
        self._position, self._rest = 0, rest
        self._continue_in(0.0)

    def _continue_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._continue)

    def _continue(self) -> None:
        began = time.monotonic()
        try:
            self._rank_slice()
        except StokerError:  # the disk is full: the engine reports that
            self._continue_in(_FULL_DISK_S)
            return
        if not self.is_settled:
            self._continue_in((time.monotonic() - began) * self._rest)

    def _rank_slice(self) -> None:
        assert self._position is not None
        with self._database.transaction():
            if self._is_by_run_time:
                jobs = self._records.unfinished(self._position, _SLICE)
                self._rank(jobs)
                last = jobs[-1].id if len(jobs) == _SLICE else None
            else:
                last = self._position + _AGE_SLICE
                self._records.rank_by_age(self._position, last)
                if last >= self._jobs.last_id:
                    self._records.mark_by_run_time(yes=False)
                    last = None
        self._position = last
        if last is None and self._is_again:
            self._position, self._is_again = 0, False

    def _rank(self, jobs: list[RankedJob]) -> None:
        ranked = ((self._rank_of(job), job) for job in jobs)
        self._records.put((rank, job.id) for rank, job in ranked if rank != job.rank)

    def _rank_of(self, job: RankedJob) -> int:
        expected_s = self._expected_s(*_kind_of(job))
        known_s = self._usual_s if expected_s is None else expected_s
        return shortest_first_rank(job.added_at_us, job.offset, known_s)

    def _expected_s(self, kind: str, params: Params) -> float | None:
        used = self._used.get(kind)
        return None if used is None else used.expected_s(params)


def _kind_of(job: RankedJob) -> tuple[str, Params]:
    """The kind of a job by its command, and its parameters."""
    words = split_words(job.command) if job.form == "argv" else job.command.split()
    template = template_of(
        CommandFacts(
            [os.fsdecode(word) for word in words],
            os.fsdecode(job.cwd),
            None if job.run_dir is None else os.fsdecode(job.run_dir),
            None if job.params is None else msgspec.json.decode(job.params, type=dict[str, object]),
        )
    )
    text = template.text.encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:24], template.params
