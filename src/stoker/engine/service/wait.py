"""`wait`: how far jobs have come."""

from __future__ import annotations

from stoker.core.lifecycle import State, is_final
from stoker.engine.hub import Hub
from stoker.engine.service.select import count, spans
from stoker.wire import Progress, Selection

_PAUSE_US = 60_000_000
_MANY = 100_000  # to look at more would keep others waiting


def progress(hub: Hub, selection: Selection) -> Progress:
    """How many of the jobs selected (by default all) stand where, and how many are not over yet."""
    named = selection.ids is not None or selection.project is not None or selection.states
    counts = count(hub, selection) if named else hub.jobs.tally()
    # What starts is as good as running to whoever waits.
    starting = counts.pop(State.STARTING, 0)
    if starting:
        counts[State.RUNNING] = counts.get(State.RUNNING, 0) + starting
    left = sum(number for state, number in counts.items() if not is_final(state))
    is_over = named and not left and sum(counts.values()) <= _MANY
    return Progress(
        counts=counts, left=left, took_s=_took_s(spans(hub, selection)) if is_over else None
    )


def _took_s(spans: list[tuple[int, int]]) -> float | None:
    """How long it took, back to the last pause."""
    if not spans:
        return None
    last = first = spans[0][1]
    for begin, end in spans:
        if end < first - _PAUSE_US:
            break
        first = min(first, begin)
    return (last - first) / 1e6
