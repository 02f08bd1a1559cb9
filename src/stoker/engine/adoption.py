"""Adoption of attempts that an earlier engine started."""

from __future__ import annotations

import time

from stoker.core.job import Attempt, Ending
from stoker.core.lifecycle import State
from stoker.core.node import split_label
from stoker.core.slot import Slot
from stoker.core.suspension import Suspension
from stoker.engine.engine import Engine
from stoker.engine.launch_spec import log_path
from stoker.engine.placement import find_slots
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import (
    STARTING,
    EndRequest,
    Paused,
    Phase,
    Running,
    RunningAttempt,
    Suspended,
)
from stoker.engine.slots import SlotTable
from stoker.store.jobs import Known
from stoker.store.queue_jobs import Facts, QueueJobs


def revive(engine: Engine, jobs: QueueJobs, home: str, attempt: Attempt, now: float) -> None:
    """Let a waiting job have its last attempt again, which was given up with its node.

    The executor reports later what became of it.
    """
    jobs.revive(attempt.job)
    facts = jobs.facts(attempt.job)
    entry = _entry(facts)
    entry.tries = (facts.tries or 0) + 1  # giving it up took its try back
    if facts.request.retries:
        jobs.count_try(attempt, entry.tries)
    slots = _find_slots(engine, facts, shares=False)
    running = _make(engine, home, facts, entry, slots, now)
    running.revived = True
    engine.adopt(running)


def adopt(engine: Engine, jobs: QueueJobs, home: str, now: float) -> None:
    """Put the attempts that were live at the end of the last engine on their slots.

    The executor reports later what became of them. Attempts that are known to run come first: an
    attempt that was claimed ahead for the same slot follows them.
    """
    suspended = {} if engine.suspensions is None else engine.suspensions.recorded()
    reserved = {} if engine.gpus.sharing is None else engine.gpus.sharing.gpus.records.live()
    for facts in sorted(jobs.live_facts(), key=lambda facts: (facts.pid is None, facts.id)):
        attempt = Attempt(facts.id, facts.attempt)
        reservation = reserved.get(attempt)
        suspension = suspended.get(attempt)
        has_slots = suspension is None or suspension.has_slots
        shares = reservation is not None and has_slots
        slots = _find_slots(engine, facts, shares=shares) if has_slots else ()
        running = _make(engine, home, facts, _entry(facts), slots, now)
        if suspension is not None and isinstance(running.phase, Running | Paused):
            homes = find_slots(engine.slot_table, facts.slots)
            running.phase = _suspended(running.phase, suspension, homes, now)
        engine.adopt(running)
        if reservation is not None and running.slots and engine.gpus.sharing is not None:
            engine.gpus.sharing.adopt(running, reservation, facts.candidate)


def _make(
    engine: Engine, home: str, facts: Facts, entry: QueueEntry, slots: tuple[Slot, ...], now: float
) -> RunningAttempt:
    attempt = Attempt(facts.id, facts.attempt)
    return RunningAttempt(
        key=attempt.key,
        attempt=attempt,
        entry=entry,
        slots=slots,
        log=log_path(home, facts, facts.attempt),
        log_since=facts.log_since or 0,
        phase=_phase(facts, now),
        end_request=_end_request(facts),
        begun=now,
        paused_s=(facts.stopped_us or 0) / 1e6,
        node=find_node(engine.slot_table, facts.slots),
    )


def _find_slots(engine: Engine, facts: Facts, *, shares: bool) -> tuple[Slot, ...]:
    """The slots of an attempt; for a job that shares its GPU, a shared slot on it."""
    found = find_slots(engine.slot_table, facts.slots)
    if not shares or len(found) != 1 or len(found[0].keys) != 1:
        return found
    return (engine.shared_slot_on(engine.slot_table.states[found[0].index]).slot,)


def _phase(facts: Facts, now: float) -> Phase:
    if facts.pid is None:
        return STARTING
    started_at_us = facts.started_at_us or 0
    if facts.stopped_at_us is None:
        return Running(facts.pid, started_at_us)
    paused_s = max(0.0, time.time() - facts.stopped_at_us / 1e6)
    return Paused(facts.pid, started_at_us, now - paused_s)


def _suspended(
    phase: Running | Paused, suspension: Suspension, homes: tuple[Slot, ...], now: float
) -> Suspended:
    since = phase.since if isinstance(phase, Paused) else now
    return Suspended(phase.pid, phase.started_at_us, since, suspension, homes, is_adopted=True)


def _end_request(facts: Facts) -> EndRequest | None:
    if facts.being_ended is None:
        return None
    grace_s = facts.request.options.grace_s if facts.grace_s is None else facts.grace_s
    ending, reason = facts.being_ended
    return EndRequest(ending, reason, grace_s, is_sent=ending is not Ending.PRUNE)


def _entry(facts: Facts) -> QueueEntry:
    known = Known(facts.id, State.RUNNING, facts.attempt)
    return QueueEntry(facts.command, facts.request, known, facts.tries or 1, facts)


def find_node(slot_table: SlotTable, label: str | None) -> str:
    """The node in a label; empty for this machine."""
    return split_label(label)[0] if slot_table.head and label else ""
