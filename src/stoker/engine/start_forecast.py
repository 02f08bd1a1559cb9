"""Forecast of starts: when and on which GPUs the waiting jobs will run.

Jobs that share GPUs are simulated with the sharing policy. Without such jobs, each waiting job gets, in queue
order, the slots that are free first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.sharing_forecast import Expected, Forecast
from stoker.engine.slots import SlotTable
from stoker.simulator.simulation import Span


class PlannedStart(msgspec.Struct, frozen=True, kw_only=True):
    """The expected run of a waiting job, in seconds from now, on these slots."""

    job: int
    slots: tuple[str, ...]
    start_s: float
    end_s: float


Running = Sequence[tuple[RunningAttempt, float]]
"""The running attempts on GPUs, and in how many seconds each is expected to end."""


def plan_starts(
    waiting: Sequence[Expected],
    running: Running,
    slot_table: SlotTable,
    forecast: Forecast | None,
) -> list[PlannedStart]:
    """Foretell the runs of waiting jobs that need GPUs, in the order of the queue."""
    on_gpus = [job for job in waiting if job.candidate.slots]
    labels = {
        state.slot.index: state.slot.label for state in slot_table.whole_slots() if state.is_open
    }
    candidates = [job.candidate for job in on_gpus]
    candidates += [each.entry.candidate for each, _left_s in running if each.entry.candidate]
    if forecast is not None and forecast.concerns(candidates):
        return _simulate(on_gpus, running, [*labels.values()], forecast)
    free_at = dict.fromkeys(labels, 0.0)
    for attempt, left_s in running:
        for slot in attempt.slots:
            if slot.index in free_at:
                free_at[slot.index] = max(free_at[slot.index], left_s)
    return _list_schedule(on_gpus, free_at, labels)


def _list_schedule(
    waiting: Sequence[Expected], free_at: dict[int, float], labels: Mapping[int, str]
) -> list[PlannedStart]:
    """Give each job the slots that are free first."""
    planned: list[PlannedStart] = []
    for job in waiting:
        allowed = job.candidate.allowed
        usable = [slot for slot in free_at if allowed is None or slot in allowed]
        if len(usable) < job.candidate.slots:
            continue  # this queue cannot run it now
        taken = sorted(usable, key=lambda slot: (free_at[slot], slot))[: job.candidate.slots]
        start_s = max(free_at[slot] for slot in taken)
        for slot in taken:
            free_at[slot] = start_s + job.seconds
        slots = tuple(labels[slot] for slot in sorted(taken))
        end_s = start_s + job.seconds
        planned.append(
            PlannedStart(job=job.candidate.id, slots=slots, start_s=start_s, end_s=end_s)
        )
    return planned


def _simulate(
    waiting: Sequence[Expected], running: Running, labels: Sequence[str], forecast: Forecast
) -> list[PlannedStart]:
    known = [(each, left_s) for each, left_s in running if each.entry.candidate is not None]
    jobs = [
        Expected(each.entry.candidate, left_s) for each, left_s in known if each.entry.candidate
    ]
    spans = forecast.spans([*jobs, *waiting])
    names = _name_gpus([each for each, _left_s in known], spans, labels)
    return [
        PlannedStart(
            job=job.candidate.id,
            slots=tuple(sorted({names[span.gpu] for span in own if span.gpu in names})),
            start_s=min(span.start_s for span in own),
            end_s=max(span.end_s for span in own),
        )
        for job, own in zip(waiting, spans[len(jobs) :], strict=True)
        if own
    ]


def _name_gpus(
    running: Sequence[RunningAttempt], spans: Sequence[Sequence[Span]], labels: Sequence[str]
) -> dict[str, str]:
    """Name each simulated GPU by the GPU that most of the running jobs simulated there are on."""
    votes: Counter[tuple[str, str]] = Counter()
    for attempt, own in zip(running, spans, strict=False):
        votes.update((span.gpu, slot.label) for span in own for slot in attempt.slots)
    names: dict[str, str] = {}
    for (gpu, label), _count in votes.most_common():
        if gpu not in names and label in labels and label not in names.values():
            names[gpu] = label
    left = [label for label in labels if label not in names.values()]
    simulated = sorted({span.gpu for own in spans for span in own} - names.keys())
    return names | dict(zip(simulated, left, strict=False))
