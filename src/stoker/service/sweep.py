"""`sweep`: the runs of a sweep, and which of them have succeeded."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.job_rows import class_of, seconds
from stoker.store.jobs import decode_use
from stoker.store.sweep_records import runs_after
from stoker.wire import Bytes, SweepPage, SweepRun, from_wire, to_wire


def sweep(
    context: QueueContext, name: str, cwd: Bytes, *, after: int, limit: int, params: bool = False
) -> SweepPage:
    """A page of the runs of a sweep, those of jobs after this one; none where there is no such sweep."""
    found = runs_after(
        context.database, name, from_wire(cwd), after, limit=limit + 1, params=params
    )
    runs = [
        SweepRun(
            identity=run.identity.hex(),
            dir=to_wire(run.dir),
            job=run.job,
            state=State(run.state),
            attempt=run.attempt,
            slots=run.slots or None,
            reason=run.reason,
            started_at=seconds(run.started_at_us),
            ended_at=seconds(run.ended_at_us),
            git_commit=run.git_commit,
            failure=class_of(run.failure),
            gpu_use=decode_use(run.gpu_use),
            params=run.params,
        )
        for run in found[:limit]
    ]
    return SweepPage(runs=runs, next=runs[-1].job if len(found) > limit else None)
