"""`sweep`, `sweeps` and `results`: sweeps, their runs and what the runs reported.

Planning a sweep and reading results take long: worker tasks do so in processes of their own.
"""

from __future__ import annotations

import asyncio

from msgspec import Raw

from stoker import wire
from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.job_rows import class_of, seconds
from stoker.store.jobs import decode_use
from stoker.store.sweep_records import count_runs, newest_sweeps, runs_after

_COUNTED = 5000


def sweep(context: QueueContext, query: wire.SweepQuery) -> wire.SweepPage:
    """List the runs of a sweep, a page at a time; an unknown sweep has no runs."""
    found = runs_after(
        context.database,
        query.name,
        wire.from_wire(query.cwd),
        query.after,
        limit=query.limit + 1,
        params=query.params,
    )
    runs = [
        wire.SweepRun(
            identity=run.identity.hex(),
            dir=wire.to_wire(run.dir),
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
        for run in found[: query.limit]
    ]
    return wire.SweepPage(runs=runs, next=runs[-1].job if len(found) > query.limit else None)


async def sweeps(context: QueueContext, query: wire.SweepsQuery) -> list[wire.SweepInfo]:
    """List sweeps, the newest first, with the states of their runs."""
    found = []
    for each in newest_sweeps(context.database, query.limit):
        if each.first_job is None or each.last_job is None:
            continue  # all its runs are forgotten
        await asyncio.sleep(0)  # the engine may plan a turn between two sweeps
        counts = count_runs(context.database, each.id, _COUNTED)
        found.append(
            wire.SweepInfo(
                name=each.name,
                cwd=wire.to_wire(each.cwd),
                counts=counts,
                first=each.first_job,
                last=each.last_job,
                large=sum(counts.values()) >= _COUNTED,
            )
        )
    return found


async def plan(context: QueueContext, draft: wire.SweepDraft) -> Raw:
    """Return how many runs a sweep has, and the first of them. Nothing is added."""
    return Raw(await context.worker_tasks.send("plan", draft))


async def queue(context: QueueContext, order: wire.SweepOrder) -> Raw:
    """Queue the runs of a sweep that have not succeeded, or those that `rerun` names."""
    return Raw(await context.worker_tasks.send("queue", order))


async def results(context: QueueContext, query: wire.ResultsQuery) -> Raw:
    """Return the results of a sweep: its runs with their parameters and the metrics reported last."""
    return Raw(await context.worker_tasks.send("results", query))


async def curves(context: QueueContext, query: wire.CurveQuery) -> Raw:
    """Return what the newest runs of a sweep have reported of a metric, over their steps."""
    return Raw(await context.worker_tasks.send("curves", query))


async def export(context: QueueContext, query: wire.ResultsQuery) -> bytes:
    """Return all runs of a sweep as CSV, with all parameters and metrics."""
    return await context.worker_tasks.send("export", query)
