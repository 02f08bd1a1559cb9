"""`counts`: the number of jobs in each state."""

from __future__ import annotations

from functools import partial

import msgspec

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.service.blocking_calls import call_in_thread
from stoker.store.job_queries import count_matching
from stoker.wire import CountsQuery


async def counts(context: QueueContext, query: CountsQuery) -> dict[State, int]:
    """Count jobs by state. Counting a part of a million jobs takes a while, in a thread."""
    if query == CountsQuery():
        return context.jobs.tally()
    wanted = msgspec.structs.asdict(query)
    return await call_in_thread(partial(count_matching, context.database.path, **wanted))
