"""`wait`: how far jobs have come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stoker.core.lifecycle import State, is_final
from stoker.engine.hub import Hub
from stoker.engine.service.select import find
from stoker.wire import Progress, Selection


def progress(hub: Hub, selection: Selection) -> Progress:
    """How many of the jobs selected (by default all) stand where, and how many are not over yet."""
    named = selection.ids is not None or selection.project is not None or selection.states
    counts = dict(Counter(_states(hub, selection))) if named else hub.jobs.tally()
    left = sum(count for state, count in counts.items() if not is_final(State(state)))
    return Progress(counts=counts, left=left)


def _states(hub: Hub, selection: Selection) -> Iterator[State]:
    # What starts is as good as running to whoever waits.
    for _job, state in find(hub, selection):
        yield State.RUNNING if state is State.STARTING else state
