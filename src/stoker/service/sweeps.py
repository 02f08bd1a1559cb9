"""`sweeps`: which sweeps there are, and how far they have come."""

from __future__ import annotations

import asyncio

from stoker.engine.context import QueueContext
from stoker.store.sweep_records import count_runs, newest_sweeps
from stoker.wire import SweepInfo, to_wire

_COUNTED = 5000


async def sweeps(context: QueueContext, limit: int) -> list[SweepInfo]:
    """The newest sweeps; the engine turns between two of them."""
    found = []
    for sweep in newest_sweeps(context.database, limit):
        if sweep.first_job is None or sweep.last_job is None:
            continue  # none of its runs is known any more
        await asyncio.sleep(0)
        counts = count_runs(context.database, sweep.id, _COUNTED)
        found.append(
            SweepInfo(
                name=sweep.name,
                cwd=to_wire(sweep.cwd),
                counts=counts,
                first=sweep.first_job,
                last=sweep.last_job,
                large=sum(counts.values()) >= _COUNTED,
            )
        )
    return found
