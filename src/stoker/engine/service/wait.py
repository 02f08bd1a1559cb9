"""`wait`: how far jobs have come."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_final
from stoker.engine.hub import Hub
from stoker.engine.service.select import count
from stoker.wire import Progress, Selection


def progress(hub: Hub, selection: Selection) -> Progress:
    """How many of the jobs selected (by default all) stand where, and how many are not over yet."""
    named = selection.ids is not None or selection.project is not None or selection.states
    counts = count(hub, selection) if named else hub.jobs.tally()
    # What starts is as good as running to whoever waits.
    starting = counts.pop(State.STARTING, 0)
    if starting:
        counts[State.RUNNING] = counts.get(State.RUNNING, 0) + starting
    left = sum(number for state, number in counts.items() if not is_final(state))
    return Progress(counts=counts, left=left)
