"""`sweep`: the runs of a sweep, and which of them have succeeded."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.job_rows import class_of, seconds
from stoker.store.jobs import decode_use
from stoker.wire import Bytes, SweepPage, SweepRun, from_wire, to_wire

_RUNS = (
    "SELECT identity, dir, sweep_run.job, coalesce(state, iif(done, 'done', 'lost')), attempt, slots,"
    " reason, started_at_us, ended_at_us, git_commit, failure, gpu_use, iif(?, params, NULL)"
    " FROM sweep_run LEFT JOIN job ON job.id = sweep_run.job"
    " LEFT JOIN submission ON submission.id = job.submission"
    " WHERE sweep = (SELECT id FROM sweep WHERE name = ? AND cwd = ?) AND sweep_run.job > ?"
    " ORDER BY sweep_run.job LIMIT ?"
)


def sweep(
    context: QueueContext, name: str, cwd: Bytes, *, after: int, limit: int, params: bool = False
) -> SweepPage:
    """A page of the runs of a sweep, those of jobs after this one; none where there is no such sweep."""
    values = (params, name, from_wire(cwd), after, limit + 1)
    rows = context.database.execute(_RUNS, values).fetchall()
    runs = [
        SweepRun(
            identity=row[0].hex(),
            dir=to_wire(row[1]),
            job=row[2],
            state=State(row[3]),
            attempt=row[4] or 0,
            slots=row[5] or None,
            reason=row[6],
            started_at=seconds(row[7]),
            ended_at=seconds(row[8]),
            git_commit=row[9],
            failure=class_of(row[10]),
            gpu_use=decode_use(row[11]),
            params=row[12],
        )
        for row in rows[:limit]
    ]
    return SweepPage(runs=runs, next=runs[-1].job if len(rows) > limit else None)
