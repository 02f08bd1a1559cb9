"""Facts about a sweep's runs that are not in their folders: states and GPU use."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.home import find_home
from stoker.store.foreground_runs import read_outcomes
from stoker.sweep_results.run_record import RunRecord
from stoker.sweeps.earlier_runs import record_key
from stoker.wire import from_wire

if TYPE_CHECKING:
    from stoker.core.usage import AttemptUse


STATES_UNKNOWN = "no daemon is running, so failed runs count too: stoker daemon start"


def add_facts(records: Sequence[RunRecord], name: str, cwd: str) -> bool:
    """Add facts to runs from foreground sweeps and from the queue; the queue's facts win.

    `name` and `cwd` are those of the submission.
    Returns False if there is a queue that cannot be asked, and runs about which nothing else is known.
    """
    known = {record.dir: record for record in records}
    for each in read_outcomes(find_home(), record_key(cwd, name)):
        record = known.get(os.path.dirname(os.fsdecode(each.log)))
        if record is not None:
            _put(record, _common(each.state, each.attempt, each.slots, each.reason, each.seconds))
    try:
        with Client(restart=False) as client:
            for run in client.sweep(name, cwd):
                record = known.get(os.fsdecode(from_wire(run.dir)))
                if record is None:
                    continue
                has_times = run.ended_at is not None and run.started_at is not None
                seconds = (run.ended_at or 0) - (run.started_at or 0) if has_times else None
                _put(
                    record,
                    {
                        **_common(run.state.value, run.attempt, run.slots, run.reason, seconds),
                        "job": run.job,
                        "failure": None if run.failure is None else run.failure.value,
                        **_gpu_facts(run.gpu_use),
                        "commit": run.git_commit,
                    },
                )
    except NoDaemonError:
        has_queue = os.path.exists(os.path.join(find_home(), "stoker.db"))
        return not has_queue or all(record.facts for record in records)
    return True


def _put(record: RunRecord, facts: dict[str, Any]) -> None:
    record.facts = {name: value for name, value in facts.items() if value is not None}


def _common(
    state: str, attempt: int, slots: str | None, reason: str | None, seconds: float | None
) -> dict[str, Any]:
    gpus = len(re.split("[,+]", slots)) if slots else 0
    hours = None if seconds is None else seconds / 3600
    return {
        "state": state,
        "attempts": attempt,
        "gpu": slots,
        "hours": hours,
        "gpu_hours": None if hours is None else hours * gpus,
        "reason": reason,
    }


def _gpu_facts(use: AttemptUse | None) -> dict[str, float | None]:
    if use is None:
        return {}
    gib = 2**30
    peak, mean = use.mem_peak_bytes, use.mem_mean_bytes
    return {
        "gpu_mem_peak_gib": None if peak is None else round(peak / gib, 3),
        "gpu_mem_mean_gib": None if mean is None else round(mean / gib, 3),
        "sm_mean_pct": use.sm_mean_pct,
    }
