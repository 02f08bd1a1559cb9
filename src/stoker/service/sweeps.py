"""`sweeps`: which sweeps there are, and how far they have come."""

from __future__ import annotations

import asyncio

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.wire import SweepInfo, to_wire

_COUNTED = 5000
_SWEEPS = (
    "SELECT id, name, cwd, (SELECT min(job) FROM sweep_run AS r WHERE r.sweep = sweep.id),"
    " (SELECT max(job) FROM sweep_run AS r WHERE r.sweep = sweep.id) FROM sweep ORDER BY id DESC LIMIT ?"
)
_COUNTS = (
    "SELECT coalesce(state, iif(done, 'done', 'lost')) AS now, count(*) FROM"
    " (SELECT job, done FROM sweep_run WHERE sweep = ? ORDER BY job DESC LIMIT ?) AS newest"
    " LEFT JOIN job ON job.id = newest.job GROUP BY now"
)


async def sweeps(context: QueueContext, limit: int) -> list[SweepInfo]:
    """The newest sweeps; the engine turns between two of them."""
    found = []
    rows = context.database.execute(_SWEEPS, (limit,)).fetchall()
    for number, name, cwd, first, last in rows:
        if first is None:
            continue  # none of its runs is known any more
        await asyncio.sleep(0)
        counts = dict(context.database.execute(_COUNTS, (number, _COUNTED)).fetchall())
        found.append(
            SweepInfo(
                name=name,
                cwd=to_wire(cwd),
                counts={State(state): count for state, count in counts.items()},
                first=first,
                last=last,
                large=sum(counts.values()) >= _COUNTED,
            )
        )
    return found
