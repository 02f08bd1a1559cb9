"""Queues the runs of a sweep that was written on the page, as `stoker sweep` does."""

from __future__ import annotations

import os

from stoker.client.client import Client
from stoker.errors import UsageError
from stoker.sweep_results.collect import write_manifest
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.queueing import (
    describe_runs,
    make_search_order,
    queue_runs,
    submission_lock,
)
from stoker.wire import SweepAdded, SweepDraft, SweepOrder
from stoker.worker_tasks.plan import read_draft

_OPTIONS = set(SweepOrder.__struct_fields__) - set(SweepDraft.__struct_fields__)


def queue(home: str, order: SweepOrder) -> SweepAdded:
    """Queue the chosen runs; they are on disk when this returns."""
    sweep = read_draft(order)
    if sweep.is_adaptive and order.rerun in ("failed", "all"):
        raise UsageError(
            "a sweep of this method goes on with new runs: raise samples, or give it another name",
            field="rerun",
        )
    given = {name: getattr(order, name) for name in _OPTIONS} | {"timeout": order.timeout or None}
    common = describe_runs(sweep, os.fsencode(order.cwd), given, {"by_page": True})
    try:
        write_manifest(sweep)
    except OSError as error:
        raise UsageError(f"cannot write to {sweep.root}: {error.strerror}", field="cwd") from error
    with Client(home, restart=False) as client, submission_lock(home, sweep.name, order.cwd):
        if sweep.is_adaptive:
            begun = client.search(make_search_order(sweep, order.cwd, common))
            return SweepAdded(
                name=sweep.name, added=begun.left, passed_over=begun.ended, first=begun.first
            )
        history = EarlierRuns(client.sweep(sweep.name, order.cwd))
        runs = history.choose(sweep, Rerun(order.rerun))
        parts = list(queue_runs(client, runs, common))
        if sweep.is_watched and (parts or history.live):
            client.search(make_search_order(sweep, order.cwd, common))
    added = sum(part.last - part.first + 1 for part in parts)
    return SweepAdded(
        name=sweep.name,
        added=added,
        passed_over=sweep.count - added,
        first=parts[0].first if parts else None,
        last=parts[-1].last if parts else None,
    )
