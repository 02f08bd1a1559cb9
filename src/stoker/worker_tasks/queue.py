"""Queues the runs of a sweep that was written on a page, as `stoker sweep` does."""

from __future__ import annotations

import os

import msgspec

from stoker.client.client import Client
from stoker.core.durations import parse_duration
from stoker.core.sharing.rules import AUTO
from stoker.errors import UsageError
from stoker.submit_context import find_user
from stoker.sweep_results.collect import note_sweep
from stoker.sweeps.earlier_runs import EarlierRuns, Rerun
from stoker.sweeps.plan import Sweep
from stoker.sweeps.queueing import alone, queue_runs
from stoker.wire import NewJob, Submission, SweepAdded, SweepOrder, to_wire
from stoker.worker_tasks.plan import read_draft


def queue(home: str, order: SweepOrder) -> SweepAdded:
    """Add the runs that are wanted; they are on disk when this returns."""
    sweep = read_draft(order)
    common = _common(order, sweep)
    try:
        note_sweep(sweep)
    except OSError as error:
        raise UsageError(f"cannot write to {sweep.root}: {error.strerror}", field="cwd") from error
    with Client(home, restart=False) as client, alone(home, sweep.name, order.cwd, _wait_quietly):
        history = EarlierRuns(client.sweep(sweep.name, order.cwd))
        runs = history.choose(sweep, Rerun(order.rerun))
        parts = list(queue_runs(client, runs, common))
    added = sum(part.last - part.first + 1 for part in parts)
    return SweepAdded(
        name=sweep.name,
        added=added,
        passed_over=sweep.count - added,
        first=parts[0].first if parts else None,
        last=parts[-1].last if parts else None,
    )


def _wait_quietly(_why: str) -> None:
    """Nobody is there to be told: who asks waits for the answer anyway."""


def _common(order: SweepOrder, sweep: Sweep) -> Submission:
    wanted = sweep.resources
    timeout = order.timeout or wanted.timeout
    message = {
        "request_id": "of a part",
        "jobs": [NewJob(command="of a part")],
        "cwd": to_wire(os.fsencode(order.cwd)),
        "sweep": sweep.name,
        "project": sweep.name,
        "gpus": order.gpus if order.gpus is not None else wanted.gpus,
        "priority": order.priority if order.priority is not None else wanted.priority,
        "retries": order.retries if order.retries is not None else wanted.retries,
        "share": AUTO.text,
        "warm": sweep.warm,
        "gpu_mem_bytes": order.gpu_mem_bytes or wanted.gpu_mem_bytes,
        "nodes": order.nodes,
        "on": order.on,
        "node_labels": order.node_labels,
        "timeout_s": parse_duration(timeout) if timeout else None,
        "user": find_user(),
        "by_page": True,
    }
    given = {key: value for key, value in message.items() if value is not None}
    try:
        return msgspec.convert(given, Submission)
    except msgspec.ValidationError as error:
        raise UsageError(f"this cannot be asked for: {error}") from None
