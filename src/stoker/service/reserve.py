"""`reserve`: keeps GPUs of this machine for the queue's user for some time, within the machine's rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from stoker.core.durations import spell_duration
from stoker.core.user_reservation import (
    DEFAULT_LONGEST_S,
    UserReservation,
    cut,
    most_at_once,
    stretch_s,
)
from stoker.core.wait_reason import SlotView, waits_for_slots
from stoker.engine.context import QueueContext
from stoker.engine.gpu_turns import GpuTurns
from stoker.engine.slot_state import REMOVED, LeaseRequested, SlotState
from stoker.errors import ConflictError, NotFoundError
from stoker.gpus.box_file import rules_path
from stoker.service.why import describe_holder
from stoker.wire import EndReservation, Reserve, UserReservationInfo

_MOST = 100
_ANSWER_S = 1.0
_STEP_S = 0.01
_SLACK_S = 1.0  # times of the Unix epoch are not exact to the last digit


async def reserve(context: QueueContext, order: Reserve) -> UserReservationInfo:
    """Keep GPUs for the queue's user for some time. Those that others hold are waited for in turn."""
    now = _turns(context).reserved.now()
    begin_at = max(now, order.begin_at or now)
    end_at = begin_at + order.for_s
    context.reservations.forget_over(now)
    _check(
        context,
        UserReservation(id=0, gpus=order.gpus, begin_at=begin_at, end_at=end_at),
        context.reservations.all,
    )
    made = context.reservations.add(order.gpus, begin_at, end_at)
    await _plan_again(context)
    known = {each.id: each for each in read_reservations(context)}
    return known.get(made.id, _info(made))  # it may be over already


def read_reservations(context: QueueContext) -> list[UserReservationInfo]:
    """Return the reservations of the queue's user that have not ended, and which GPUs they have."""
    turns = _turns(context)
    now = turns.reserved.now()
    known = [each for each in context.reservations.all if each.end_at > now]
    known = cut(known, _longest_s(turns))
    reserved = turns.reserved
    names = {
        key: gpu
        for state in _slots_here(context)
        for key, gpu in zip(state.slot.keys, state.slot.gpus, strict=True)
    }
    held = [names[key] for key in reserved.kept if key in names]
    elsewhere, found = reserved.elsewhere, []
    for each in sorted(known, key=lambda each: -each.end_at):  # as their GPUs are kept
        info = _info(each)
        if each.end_at <= max(now, each.begin_at):
            info.waits_for = f"the rules of this machine have ended it ({rules_path()})"
        elif each.begin_at <= now:
            info.held, held = held[: each.gpus], held[each.gpus :]
            info.elsewhere = min(elsewhere, each.gpus - len(info.held))
            elsewhere -= info.elsewhere
            lacking = each.gpus - len(info.held) - info.elsewhere
            info.waits_for = _why_lacking(context, lacking) if lacking else None
        found.append(info)
    return sorted(found, key=lambda each: each.id)


async def end_reservation(context: QueueContext, order: EndReservation) -> UserReservationInfo:
    """End a reservation now. Jobs on its GPUs go on; idle GPUs are released."""
    context.reservations.forget_over(_turns(context).reserved.now())
    known = context.reservations.all
    ended = next((each for each in known if each.id == order.id), None)
    if ended is None:
        there = ", ".join(str(each.id) for each in known)
        raise NotFoundError(
            f"no reservation {order.id}: {f'there is {there}' if there else 'there is none'}"
        )
    context.reservations.end(ended)
    await _plan_again(context)
    return _info(ended)


def _info(each: UserReservation) -> UserReservationInfo:
    return UserReservationInfo(
        id=each.id, gpus=each.gpus, begin_at=each.begin_at, end_at=each.end_at
    )


def _turns(context: QueueContext) -> GpuTurns:
    turns = context.engine.turns
    if turns is None:
        raise ConflictError("this queue takes no turns with others, so it reserves no GPUs")
    return turns


def _slots_here(context: QueueContext) -> list[SlotState]:
    """Return the slots of this machine that the queue has."""
    slot_table = context.engine.slot_table
    return [
        state
        for state in slot_table.whole_slots()
        if slot_table.is_own(state.slot.node) and state.drained != REMOVED
    ]


def _longest_s(turns: GpuTurns) -> float:
    return turns.box_file.longest_reservation_s(turns.uid)


def _check(context: QueueContext, new: UserReservation, others: Sequence[UserReservation]) -> None:
    """Refuse what the queue has no GPUs for, and what the rules of the machine do not allow."""
    turns = _turns(context)
    most_held = turns.limits(context.engine.clock()).gpus
    gpus = {key for state in _slots_here(context) for key in state.slot.keys}
    if not gpus:
        raise ConflictError(context.no_gpu_reason or "this queue has no GPU of this machine")
    if len(others) >= _MOST:
        raise ConflictError(f"you have {_MOST} reservations: stoker reserve --end ID ends one")
    most, why = len(gpus), f"this queue has {_count(len(gpus))} of this machine"
    if most_held is not None and most_held < most:
        most, why = most_held, f"you may hold {_count(most_held)} at once ({rules_path()})"
    if new.gpus > most:
        raise ConflictError(f"cannot reserve {_count(new.gpus)}: {why}")
    _check_length(new, others, _longest_s(turns))
    before = most_at_once(new, others) - new.gpus
    if before + new.gpus > most:
        raise ConflictError(
            f"cannot reserve {new.gpus} more: {_count(before)} {'is' if before == 1 else 'are'} reserved"
            f" at that time already (stoker reserve), and {why}"
        )


def _check_length(
    new: UserReservation, others: Sequence[UserReservation], longest_s: float
) -> None:
    if not longest_s:
        raise ConflictError(f"the rules of this machine allow no reservations ({rules_path()})")
    is_rule = longest_s != DEFAULT_LONGEST_S
    most = f"{spell_duration(longest_s)} at most{f' ({rules_path()})' if is_rule else ''}"
    if new.end_at - new.begin_at > longest_s + _SLACK_S:
        raise ConflictError(f"a reservation may last {most}")
    total_s = stretch_s(new, others)
    if total_s > longest_s + _SLACK_S:
        raise ConflictError(
            f"with the reservations next to it, that is {spell_duration(round(total_s))} without a gap:"
            f" {most}"
        )


def _count(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"


async def _plan_again(context: QueueContext) -> None:
    """Let the engine plan, and wait a moment for the answers to what it asks for."""
    context.events.touch()
    context.driver.poke()
    deadline = time.monotonic() + _ANSWER_S
    await asyncio.sleep(0)  # the turn comes first
    while _is_asking(context) and time.monotonic() < deadline:
        await asyncio.sleep(_STEP_S)


def _is_asking(context: QueueContext) -> bool:
    """Whether GPUs are lacking, and an answer may still be to come."""
    return bool(_turns(context).reserved.lacking) and any(
        isinstance(state.lease, LeaseRequested) or state.refusal is None
        for state in _slots_here(context)
        if state.is_open and not state.is_held
    )


def _why_lacking(context: QueueContext, gpus: int) -> str:
    """Say which GPUs a reservation waits for, and who holds each."""
    now = context.engine.clock()
    kept = _turns(context).reserved.kept
    views = [
        SlotView(
            label=state.slot.bare,
            drained=state.drained,
            closed=state.fault,
            waits_for=describe_holder(context, state, now),
        )
        for state in _slots_here(context)
        if kept.keys().isdisjoint(state.slot.keys)
    ]
    return waits_for_slots(gpus, views)
