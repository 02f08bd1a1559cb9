"""`timeline`: which attempts were on which GPUs, and which waiting jobs are expected there when."""

from __future__ import annotations

import time

from stoker.core.lifecycle import State
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt, label_of
from stoker.service.job_rows import seconds
from stoker.store.attempt_history import PastAttempt, attempts_since
from stoker.wire import Timeline, TimelineAttempt, TimelinePlan, TimelineQuery

_MOST = 4000


def timeline(context: QueueContext, query: TimelineQuery) -> Timeline:
    """Return the attempts on GPUs that ended after a time or run now, and the forecast of starts.

    The forecast has the first waiting jobs. It is empty while nothing is known of how long jobs take.
    """
    now = time.time()
    past = attempts_since(context.database, round(query.since * 1e6), _MOST + 1)
    running = [
        _running(context, each) for each in context.engine.slot_table.running.values() if each.slots
    ]
    planned = context.eta.planned_starts()
    facts = {each.job: context.jobs.facts(each.job) for each in planned}
    return Timeline(
        now=now,
        attempts=[*map(_past, past[:_MOST]), *running],
        planned=[
            TimelinePlan(
                job=each.job,
                name=facts[each.job].name,
                project=facts[each.job].request.project,
                slots=list(each.slots),
                start_at=now + each.start_s,
                end_at=now + each.end_s,
            )
            for each in planned
        ],
        left_out=len(past) > _MOST,
    )


def _past(attempt: PastAttempt) -> TimelineAttempt:
    return TimelineAttempt(
        job=attempt.job,
        attempt=attempt.number,
        name=attempt.name,
        project=attempt.project,
        state=State(attempt.state),
        slots=attempt.slots.split(","),
        started_at=seconds(attempt.started_at_us) or 0.0,
        ended_at=seconds(attempt.ended_at_us),
    )


def _running(context: QueueContext, running: RunningAttempt) -> TimelineAttempt:
    facts, started_us = running.entry.facts, running.started_at_us
    left_s = context.eta.left_s(running)
    return TimelineAttempt(
        job=running.attempt.job,
        attempt=running.attempt.number,
        name=None if facts is None else facts.name,
        project=None if facts is None else facts.request.project,
        state=State.STARTING if started_us is None else State.RUNNING,
        slots=label_of(running.slots).split(","),
        started_at=time.time() if started_us is None else started_us / 1e6,
        expected_end_at=None if left_s is None else time.time() + left_s,
    )
