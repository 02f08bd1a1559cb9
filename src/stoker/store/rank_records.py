"""Records of the queue's order: ranks, jobs that were moved, and learned run times."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import NamedTuple

import msgspec

from stoker.core.run_times import RunTimes
from stoker.store.database import Database
from stoker.store.jobs import FINAL_STATES
from stoker.store.named_values import NamedValues

_KINDS = 1000
_COMMAND_BYTES = 2000  # what follows does not tell kinds apart
_SHORTEST = "order.shortest"
_COLUMNS = (
    f"SELECT job.id, job.rank, substr(command, 1, {_COMMAND_BYTES}), form, submission.cwd,"  # noqa: S608 - ours
    " submitted_at_us,"
    " job.id - first_job, sweep_run.dir, sweep_run.params"
    " FROM job JOIN submission ON submission.id = job.submission"
    " LEFT JOIN sweep_run ON sweep_run.job = job.id"
)
# What `stoker move` or a preemption has placed stays there.
_NOT_MOVED = "NOT EXISTS (SELECT 1 FROM meta WHERE meta.name = 'moved.' || job.id)"
_UNFINISHED = (
    f"{_COLUMNS} WHERE job.id > ? AND state NOT IN ({FINAL_STATES})"
    f" AND {_NOT_MOVED} ORDER BY job.id LIMIT ?"
)
_BETWEEN = f"{_COLUMNS} WHERE job.id BETWEEN ? AND ? AND {_NOT_MOVED}"
_ONE = f"{_COLUMNS} WHERE job.id = ?"
_decoder = msgspec.json.Decoder(RunTimes)


class RankedJob(NamedTuple):
    """What the rank of a job is computed from."""

    id: int
    rank: int
    command: bytes
    form: str | None
    cwd: bytes
    added_at_us: int
    offset: int  # its position in its submission
    run_dir: bytes | None
    params: str | None  # of its run in a sweep, as JSON


class RankRecords:
    """Reads ranks, and writes them inside the database's transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._run_times = NamedValues(database, "run_time.")
        self._moved = NamedValues(database, "moved.")
        self._marks = NamedValues(database)

    @property
    def are_by_run_time(self) -> bool:
        """Whether ranks by run time may be in the database."""
        return self._marks.get(_SHORTEST) is not None

    def mark_by_run_time(self, *, yes: bool) -> None:
        """Record whether ranks by run time may be in the database."""
        if yes:
            self._marks.put(_SHORTEST, b"1")
        else:
            self._marks.forget(_SHORTEST)

    def forget_moves(self) -> None:
        """Forget which jobs were moved."""
        self._moved.replace_all({})

    def unfinished(self, after: int, limit: int) -> list[RankedJob]:
        """Return the next jobs by id that are not over and were not moved."""
        return list(starmap(RankedJob, self._database.execute(_UNFINISHED, (after, limit))))

    def between(self, first: int, last: int) -> list[RankedJob]:
        """Return the jobs in a range of ids that were not moved."""
        return list(starmap(RankedJob, self._database.execute(_BETWEEN, (first, last))))

    def one(self, job: int) -> RankedJob | None:
        """Return one job, also if it was moved; None if it has no submission."""
        row = self._database.execute(_ONE, (job,)).fetchone()
        return None if row is None else RankedJob(*row)

    def put(self, ranks: Iterable[tuple[int, int]]) -> None:
        """Record ranks, each with its job."""
        for rank, job in ranks:
            self._database.write("UPDATE job SET rank = ? WHERE id = ?", (rank, job))

    def rank_by_age(self, first: int, last: int) -> None:
        """Give the jobs in a range of ids the ranks that they had when they were added."""
        self._database.write(
            "UPDATE job SET rank = id << 16 WHERE id BETWEEN ? AND ? AND rank != id << 16"
            " AND submission IS NOT NULL",
            (first, last),
        )

    def run_times(self) -> dict[str, RunTimes]:
        """Return the learned run times by kind, the oldest first."""
        found = {kind: _decoder.decode(text) for kind, text in self._run_times.all().items()}
        return dict(sorted(found.items(), key=lambda item: item[1].learned_at_s))

    def learn(self, kind: str, learned: RunTimes, known: dict[str, RunTimes]) -> None:
        """Record the run times of a kind; forgets the oldest kinds beyond the limit."""
        known.pop(kind, None)
        known[kind] = learned
        self._run_times.put(kind, msgspec.json.encode(learned))
        while len(known) > _KINDS:
            oldest = next(iter(known))
            del known[oldest]
            self._run_times.forget(oldest)
