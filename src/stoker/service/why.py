"""`why`: explains the state of a job, from the parts of the engine that decide it."""

from __future__ import annotations

import time

from stoker.core.durations import format_duration
from stoker.core.job import Request
from stoker.core.lifecycle import State, is_pending
from stoker.core.placement import read_where
from stoker.core.planner import Candidate
from stoker.core.size import format_bytes
from stoker.core.suspension import Stage
from stoker.core.wait_reason import (
    SlotCell,
    SlotView,
    describe_slot,
    waits_for_slots,
)
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import Suspended, label_of
from stoker.engine.slot_state import REMOVED, ClosedBy, SlotState
from stoker.engine.slots import SlotTable
from stoker.service.job_selection import find_one
from stoker.service.why_running import describe_away, explain_running, occupant_of
from stoker.store.attempt_history import last_earlier_reason
from stoker.store.job_queries import reason_of
from stoker.store.queue_jobs import Facts
from stoker.store.queue_order import QueuePosition, count_ahead
from stoker.warm.command import why_cold
from stoker.wire import JobQuery, Why

_COUNTED = 10_000
_NODES_SHOWN = 4
# What becomes of these jobs does not follow from their present attempt alone.
_TELLS_EARLIER = (
    State.WAITING,
    State.HELD,
    State.DELAYED,
    State.STARTING,
    State.RUNNING,
    State.DONE,
)


def why(context: QueueContext, query: JobQuery) -> Why:
    """Explain the state of a job in one sentence."""
    number = find_one(context, query.job)
    facts = context.jobs.facts(number)
    state = State(facts.state)
    text = f"job {number} {_text(context, facts, state)}{_may_still_run(context, number)}"
    if state in _TELLS_EARLIER:
        text += _earlier(context, number)
    start = _describe_start(context, facts)
    waits = state is State.WAITING
    return Why(
        id=number,
        state=state,
        text=text if start is None else f"{text}; {start}",
        gpus=_cells(context, facts) if waits else [],
        ahead=_count_ahead(context, facts) if waits else None,
    )


def _cells(context: QueueContext, facts: Facts) -> list[SlotCell]:
    """Describe each GPU that a waiting job may use; empty if it needs none."""
    if not facts.request.slots:
        return []
    reserved = context.engine.preview().reserved
    return [describe_slot(view) for view in _slots(context, facts, reserved)]


def _may_still_run(context: QueueContext, job: int) -> str:
    """Name the attempts of a job that were given up with their nodes, and whose end was not seen."""
    given_up = context.engine.given_up
    return "".join(
        f"; attempt {number} may still run on {node}: its end was not seen since {node} was cut off"
        for number, node in ([] if given_up is None else given_up.unseen(job))
    )


def _earlier(context: QueueContext, job: int) -> str:
    """Tell how the last attempt before the present one ended, and why; empty if there was none."""
    found = last_earlier_reason(context.database, job)
    if found is None:
        return ""
    number, outcome, reason = found
    was = "" if outcome is State.FAILED else "was "
    return f"; attempt {number} {was}{outcome.value}: {reason}"


def _describe_start(context: QueueContext, facts: Facts) -> str | None:
    """Return how a job with --warm starts if it is not forked from a warm worker with all its imports."""
    if not facts.request.options.warm:
        return None
    remark = context.engine.warm_status.remark_of(facts.id)
    if remark is not None:
        return f"it {remark}"
    reason = why_cold(facts.form, facts.command)
    if reason is None:
        return None
    word = "starts" if is_pending(State(facts.state)) else "started"
    return f"it {word} cold: {reason}"


def _text(context: QueueContext, facts: Facts, state: State) -> str:
    match state:
        case State.WAITING:
            return _waiting(context, facts)
        case State.HELD:
            return f"is held: stoker release {facts.id} lets it go on"
        case State.BLOCKED:
            return _blocked(context, facts)
        case State.DELAYED:
            begin = (facts.begin_at_us or 0) / 1e6
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin))
            again = ", when it is tried again" if facts.attempt else ""
            return f"is delayed until {at}, in {format_duration(begin - time.time())}{again}"
        case State.STARTING | State.RUNNING | State.PAUSED:
            return explain_running(context, facts, state)
        case State.SUSPENDED:
            return _suspended(context, facts)
        case State.DONE:
            return "is done: it ended with exit 0"
        case State.SKIPPED:
            reason = _reason(context, facts.id)
            return f"was skipped: it {reason}; stoker retry of what did not succeed revives it"
        case _:
            tries = f", after {facts.attempt} attempts" if facts.attempt > 1 else ""
            return f"is {state.value}: {_reason(context, facts.id)}{tries}"


def _waiting(context: QueueContext, facts: Facts) -> str:
    forced = context.jobs.has_forced and facts.id in context.jobs.forced()
    reasons = [] if forced else list(context.admission.reasons(facts.request.project))
    if reasons:
        return f"waits: {'; '.join(reasons)}"
    if (lacking := context.engine.retry_policy.waits_for(facts.id)) is not None:
        return lacking
    preview = context.engine.preview()
    if facts.id in preview.starting:
        return "starts in this very moment"
    most = context.engine.slot_table.slots_left()
    if facts.request.slots > most:
        has = (
            "this queue has" if context.engine.slot_table.grid is None else "no node has more than"
        )
        less = f"stoker set {facts.id} gpus={max(1, most)}"
        return f"waits for {facts.request.slots} GPUs, and {has} {most}: {less}"
    host = _lacks_host(context, facts, preview.host_kept)
    if host is not None:
        text = host
    elif facts.request.slots:
        text = _waits_for_gpus(context, facts, preview.reserved)
    else:
        text = _waits_without_gpu(context, facts.request)
    places = context.engine.retry_policy.checkpoints
    if places is not None and (waits := places.why(facts.id)) is not None:
        text += f"; {waits}"
    text += "".join(f"; {away}" for away in _away(context, facts.request))
    if facts.request.slots:
        text += "".join(f"; {told}" for told in context.allocations.explain(facts))
    return f"{text}; it is the next to start" if forced else text + _jobs_ahead(context, facts)


def _waits_for_gpus(context: QueueContext, facts: Facts, reserved: dict[int, int]) -> str:
    request = facts.request
    needed = ""
    if request.slots > 1 and context.engine.slot_table.grid is not None:
        needed = " of one node"
    if request.where is not None:
        needed += f" that fit {read_where(request.where)}"
    text = waits_for_slots(request.slots, _slots(context, facts, reserved), needed)
    if request.share is not None and request.slots == 1:
        text = text.replace("waits for 1 GPU", "waits for room on a GPU", 1)
    return text


def _waits_without_gpu(context: QueueContext, request: Request) -> str:
    slot_table = context.engine.slot_table
    if slot_table.placement.node_without_gpu(request.where) is None:
        return f"waits for a node that fits {read_where(request.where)}"
    taken = len(slot_table.without_slot)
    return f"waits for a place without GPU: {taken} of {slot_table.cpu_places} are taken"


def _lacks_host(context: QueueContext, facts: Facts, kept: dict[str, int]) -> str | None:
    """Return which CPUs or RAM a job waits for; None if it waits for something else.

    In a cluster it waits for them only if it lacks them on all nodes that answer.
    """
    job = facts.candidate
    if not job.declares_host:
        return None
    slot_table = context.engine.slot_table
    lacks: list[str] = []
    for node, room in slot_table.host_rooms.by_node.items():
        if not _may_run_on(slot_table, job, node):
            continue
        owner = kept.get(node)
        lack = room.shortage(job)
        if lack is None and owner not in (None, facts.id):
            owner_needs = context.jobs.facts(owner).request
            if room.with_job(owner_needs).shortage(job) is not None:
                lack = f"leaves CPUs and RAM to job {owner}, which is ahead"
        if lack is None:
            return None
        lacks.append(f"on {node} it {lack}" if slot_table.grid is not None else lack)
    more = f" and {len(lacks) - _NODES_SHOWN} more nodes" if len(lacks) > _NODES_SHOWN else ""
    text = ", ".join(lacks[:_NODES_SHOWN]) + more
    return f"waits: {text}" if slot_table.grid is not None else f"waits: it {text}"


def _may_run_on(slot_table: SlotTable, job: Candidate, node: str) -> bool:
    """Whether a job may run on a node as far as its placement rule says, and its slots are there."""
    if not job.slots:
        return node == (slot_table.node_without_gpu(job) or slot_table.head)
    is_there = bool(slot_table.by_node.get(node))
    return is_there and read_where(job.where).fits_node(slot_table.placement.facts(node))


def _count_ahead(context: QueueContext, facts: Facts) -> int:
    position = QueuePosition(facts.id, facts.request.priority, facts.rank)
    return count_ahead(context.database, position, _COUNTED)


def _jobs_ahead(context: QueueContext, facts: Facts) -> str:
    ahead = _count_ahead(context, facts)
    many = f"more than {_COUNTED}" if ahead >= _COUNTED else str(ahead)
    return f"; {many} job{'s' * (ahead != 1)} ahead of it" if ahead else ""


def _away(context: QueueContext, request: Request) -> list[str]:
    """Describe the nodes that fit a job and where nothing starts now."""
    where = read_where(request.where)
    fitting = [
        node
        for node in context.engine.slot_table.nodes.values()
        if where.fits_node(node) and (request.slots or where.nodes)
    ]
    away = [node for node in fitting if node.away is not None]
    shown = [describe_away(node) for node in away[:_NODES_SHOWN]]
    if not request.slots:  # for others their slots tell
        closed = [(node.name, node.why_drained or node.lacks) for node in fitting]
        shown += [f"node {name} {reason}" for name, reason in closed if reason is not None]
    more = len(away) - _NODES_SHOWN
    return shown if more <= 0 else [*shown, f"{more} more nodes are away"]


def _slots(context: QueueContext, facts: Facts, reserved: dict[int, int]) -> list[SlotView]:
    return [view for view, _index in _views(context, facts, reserved)]


def _views(
    context: QueueContext, facts: Facts, reserved: dict[int, int]
) -> list[tuple[SlotView, int]]:
    """Describe the slots that fit a job, each with its index, without those of nodes that are away."""
    here = context.admission.placed(facts.request.where)
    allowed = context.admission.allowed(facts.request.project)
    now = context.engine.clock()
    return [
        (_view(context, facts, slot_state, allowed, reserved, now), slot_state.slot.index)
        for slot_state in context.engine.slot_table.states
        if slot_state.whole_slot is None
        and ClosedBy.NODE not in slot_state.closed
        and (here is None or slot_state.slot.index in here)
        and (slot_state.drained != REMOVED or not slot_state.is_idle)
    ]


def _view(
    context: QueueContext,
    facts: Facts,
    slot_state: SlotState,
    allowed: frozenset[int] | None,
    reserved: dict[int, int],
    now: float,
) -> SlotView:
    is_barred = allowed is not None and slot_state.slot.index not in allowed
    kept_for = reserved.get(slot_state.slot.index)
    return SlotView(
        label=slot_state.slot.label,
        barred="is not for its project"
        if is_barred
        else _unfit(context, facts, slot_state) or _too_small(context, facts, slot_state),
        drained=slot_state.drained,
        closed=slot_state.fault,
        waits_for=describe_holder(context, slot_state, now),
        occupant=None if slot_state.current is None else occupant_of(slot_state.current, now),
        kept_for=kept_for,
        kept_needs=0 if kept_for is None else context.jobs.facts(kept_for).request.slots,
        shared=_shared(context, facts, slot_state),
        sharers=tuple(
            each.attempt.job for each in context.engine.slot_table.attempts_on(slot_state)
        ),
    )


def describe_holder(context: QueueContext, slot_state: SlotState, now: float) -> str | None:
    """Return who holds or has reserved a GPU, and whose turn is next there; None if it was not refused."""
    turns, refusal = context.engine.turns, slot_state.refusal
    if refusal is None:
        return None
    if turns is not None and (reserved := turns.reserved_by(slot_state)) is not None:
        return reserved
    turn = None if turns is None else turns.explain(slot_state, now)
    reason = refusal.reason
    return reason if turn is None else f"{reason} ({turn})"


def _unfit(context: QueueContext, facts: Facts, slot_state: SlotState) -> str | None:
    """Return what the node of a GPU lacks for a job, which may be time."""
    policy, node = context.engine.retry_policy, slot_state.slot.node
    lack = policy.why_unfit(facts.id, node)
    return policy.why_short(facts.id, node) if lack is None else f"will not do ({lack})"


def _too_small(context: QueueContext, facts: Facts, slot_state: SlotState) -> str | None:
    """Return why a GPU has too little memory for a job even when it is free; else None."""
    sharing = context.engine.gpus.sharing
    return None if sharing is None else sharing.why_too_small(facts.candidate, slot_state)


def _shared(context: QueueContext, facts: Facts, slot_state: SlotState) -> str | None:
    """Return why a job cannot join the jobs that share a GPU; None if no jobs share it."""
    sharing = context.engine.gpus.sharing
    if sharing is None or not slot_state.tenants:
        return None
    candidate = sharing.direct(facts.candidate)
    return sharing.explain(candidate, slot_state) or "has room for it"


def _suspended(context: QueueContext, facts: Facts) -> str:
    """Explain where a suspended job stands on its way back to its GPUs."""
    running = context.running(facts.id)
    phase = None if running is None else running.phase
    if running is None or not isinstance(phase, Suspended):
        return "is suspended"
    suspension = phase.suspension
    held = format_bytes(sum(suspension.held_bytes.values()))
    text = f"is suspended from GPU {label_of(phase.home_slots)}, with {held} in host RAM"
    if running.end_request is not None:
        return f"{text}, and is being ended: {running.end_request.reason}"
    if suspension.stage is Stage.RESUMING:
        return f"{text}, and is being resumed"
    if suspension.stage is Stage.SUSPENDED:
        note = "" if suspension.note is None else f"; {suspension.note}"
        return f"{text}: stoker resume {facts.id} lets it go on{note}"
    if suspension.note is not None:
        return f"{text}; it waits to go on: {suspension.note}"
    return f"{text}; it {_waits_for_home(context, facts, phase)}"


def _waits_for_home(context: QueueContext, facts: Facts, phase: Suspended) -> str:
    """Return which jobs keep a suspended job from its GPUs."""
    homes = {slot.index for slot in phase.home_slots}
    preview = context.engine.preview()
    if facts.id in preview.starting:
        return "goes on in this very moment"
    views = [view for view, index in _views(context, facts, preview.reserved) if index in homes]
    return waits_for_slots(len(homes), views, "") + _jobs_ahead(context, facts)


def _blocked(context: QueueContext, facts: Facts) -> str:
    needs = [need for need in context.pending.needs_of(facts.id) if not need.is_met]
    shown = []
    for need in needs[:8]:
        name = context.jobs.facts(need.id).name if need.state is not None else None
        word = need.state.value if need.state is not None else "gone"
        shown.append(f"job {need.id} ({f'{name}, ' if name else ''}{word})")
    more = f" and {len(needs) - 8} more" if len(needs) > 8 else ""
    kind = "the end" if all(need.any for need in needs) else "the success"
    return f"waits for {kind} of {', '.join(shown)}{more}"


def _reason(context: QueueContext, job: int) -> str:
    return reason_of(context.database, job) or "no reason is known"
