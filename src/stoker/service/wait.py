"""`wait`: the progress of jobs."""

from __future__ import annotations

from collections import Counter

from msgspec import structs

from stoker.core.lifecycle import State, is_final
from stoker.engine.context import QueueContext
from stoker.engine.suspensions import Suspensions
from stoker.errors import UsageError
from stoker.service.job_selection import check_project, count, spans
from stoker.store.job_queries import count_ended, count_newer, count_newer_trials, newest_id
from stoker.wire import Progress, Selection, WaitFor

_PAUSE_US = 60_000_000
_MANY = 100_000  # reading more would delay other requests


def begin(context: QueueContext, wanted: WaitFor, now: float) -> WaitFor:
    """Check a selection to wait for; `unfinished` means the jobs of this moment from now on."""
    if wanted.project is not None:
        check_project(context, wanted.project)
    if (wanted.since is None) != (wanted.last is None):
        raise UsageError("since and last come together, as a Progress has them")
    if not wanted.unfinished or wanted.since is not None:
        return wanted
    return structs.replace(wanted, since=now, last=newest_id(context.database))


def progress(context: QueueContext, selection: Selection) -> Progress:
    """Return how many selected jobs (by default all) are in each state, and how many have not ended."""
    if isinstance(selection, WaitFor) and selection.unfinished:
        return _unfinished(context, selection)
    named = selection.ids is not None or selection.project is not None or selection.states
    counts = count(context, selection) if named else context.jobs.tally()
    _join_starting(counts)
    left = _left(counts)
    if selection.ids is None and not selection.states:
        left -= _count_parked(context, selection.project)
    if not left and selection.ids is None and context.searches.has_open(selection.project):
        left = 1  # a sweep that will add runs
    is_over = named and not left and sum(counts.values()) <= _MANY
    return Progress(
        counts=counts, left=left, took_s=_took_s(spans(context, selection)) if is_over else None
    )


def _unfinished(context: QueueContext, wanted: WaitFor) -> Progress:
    """Return the progress of the jobs that waited or ran at a moment, without held jobs.

    Jobs that have ended since are found by the index of ends, the others are counted by the tally, so that a
    long history costs nothing.
    """
    assert wanted.since is not None
    assert wanted.last is not None
    newer = Counter(count_newer(context.database, wanted.last))
    counts: Counter[State] = Counter(
        {
            state: number - newer[state]
            for state, number in context.jobs.tally().items()
            if not is_final(state) and state is not State.HELD
        }
    )
    since_us = int(wanted.since * 1e6)
    counts.update(count_ended(context.database, since_us, wanted.last))
    # The runs that a sweep adds by the results so far belong to the sweep that was there.
    counts.update(count_newer_trials(context.database, wanted.last))
    found = {state: number for state, number in counts.items() if number > 0}
    _join_starting(found)
    left = _left(found) - _count_parked(context, None) or int(context.searches.has_open(None))
    return Progress(counts=found, left=left, since=wanted.since, last=wanted.last)


def _count_parked(context: QueueContext, project: str | None) -> int:
    """Count the jobs, of one project or of all, that are suspended and that their sweeps go on without."""
    found = 0
    for running in context.engine.slot_table.running.values():
        suspension = Suspensions.of(running)
        if suspension is not None and suspension.is_parked:
            found += project in (None, running.entry.request.project)
    return found


def _join_starting(counts: dict[State, int]) -> None:
    """Count starting jobs as running."""
    starting = counts.pop(State.STARTING, 0)
    if starting:
        counts[State.RUNNING] = counts.get(State.RUNNING, 0) + starting


def _left(counts: dict[State, int]) -> int:
    return sum(number for state, number in counts.items() if not is_final(state))


def _took_s(spans: list[tuple[int, int]]) -> float | None:
    """Return how long the jobs took, since the last pause."""
    if not spans:
        return None
    last = first = spans[0][1]
    for begin, end in spans:
        if end < first - _PAUSE_US:
            break
        first = min(first, begin)
    return (last - first) / 1e6
