"""`why` of a job that is being started, runs or is paused."""

from __future__ import annotations

import time

from stoker.core.durations import format_duration
from stoker.core.lifecycle import State
from stoker.core.node import NodeFacts
from stoker.core.size import format_bytes
from stoker.core.wait_reason import Occupant
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import Running, RunningAttempt
from stoker.store.queue_jobs import Facts


def explain_running(context: QueueContext, facts: Facts, state: State) -> str:
    """Tell where a job runs, with which memory, and what becomes of it."""
    return _running(context, facts, state) + _cut_off(context, facts.id)


def occupant_of(running: RunningAttempt, now: float) -> Occupant:
    """Describe a running job as the occupant of its slot."""
    started = running.started_at_us
    return Occupant(
        job=running.attempt.job,
        name=running.entry.facts.name if running.entry.facts else None,
        since_s=time.time() - started / 1e6 if started is not None else 0.0,
        limit_in_s=None if running.deadline is None else running.deadline - now,
        paused=running.is_paused,
    )


def describe_away(node: NodeFacts) -> str:
    """Tell since when a node is away, and why."""
    since = format_duration(time.time() - (node.since or 0))
    return f"node {node.name} is away since {since} ({node.away})"


def _running(context: QueueContext, facts: Facts, state: State) -> str:
    running = context.running(facts.id)
    if running is not None and running.is_claimed_ahead:
        return "is being started on the first GPU that becomes free"
    where = f"on GPU {running.label}" if running is not None and running.slots else "without GPU"
    if running is not None and running.node and not running.slots:
        where += f" on node {running.node}"
    if running is None or state is State.STARTING:
        return f"is being started {where}"
    occupant = occupant_of(running, context.engine.clock())
    word = "paused" if state is State.PAUSED else "running"
    text = f"is {word} {where} ({format_duration(occupant.since_s)})"
    if running.end_request is not None:
        return f"{text} and is being ended: {running.end_request.reason}"
    if running.is_suspended:
        return f"{text} and is being suspended"
    if state is State.PAUSED:
        return f"{text}, and keeps its GPU memory: stoker resume {facts.id} lets it go on"
    if (room := _room(context, running)) is not None:
        text += room
    if context.engine.gpus.is_mps_client(running):
        text += ", through MPS"
    if occupant.limit_in_s is not None:
        text += f", time limit in {format_duration(occupant.limit_in_s)}"
    text += _not_suspended(running)
    mark = context.waste.mark_of(running)
    return text if mark is None else f"{text}; {mark[0].kind.value}: {mark[0].text}"


def _not_suspended(running: RunningAttempt) -> str:
    """Tell why the last attempt to suspend a running job failed; empty if none did."""
    phase = running.phase
    if not isinstance(phase, Running) or phase.not_suspended is None:
        return ""
    return f"; it was not suspended: {phase.not_suspended}"


def _cut_off(context: QueueContext, job: int) -> str:
    """Return what becomes of a running job whose node is away; empty if its node is there."""
    running = context.running(job)
    node = None if running is None else context.engine.slot_table.nodes.get(running.where)
    if running is None or node is None or node.away is None:
        return ""
    fate = (
        "it runs to its end there (--on-cut finish)"
        if running.finishes_alone
        else "unless it returns in time, its jobs run elsewhere once its lease has expired"
    )
    return f"; {describe_away(node)}: {fate}"


def _room(context: QueueContext, running: RunningAttempt) -> str | None:
    """Describe the memory that a job on a shared GPU has reserved and uses."""
    tenancy = context.engine.gpus.tenancy_of(running)
    if tenancy is None:
        return None
    look = context.look()
    seen = None if look is None else look.jobs.get(running.key)
    used = None if seen is None or not seen.mem_bytes else seen.mem_bytes.get(tenancy.gpu)
    how = "capped" if tenancy.tenant.capped else "best effort"
    because = tenancy.tenant.because and f": {tenancy.tenant.because}"
    text = f" with {format_bytes(tenancy.tenant.reserved_bytes)} set aside ({how}{because})"
    return text if used is None else f"{text} and {format_bytes(used)} in use"
