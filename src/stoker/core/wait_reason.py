"""The sentence that says why a job waits, built from the planner's own reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from stoker.core.durations import format_duration

_SHOWN = 8


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a slot: how long it has run, and in how many seconds a time limit ends it."""

    job: int
    name: str | None
    since_s: float
    limit_in_s: float | None = None
    paused: bool = False


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """A slot as the planner sees it. `barred` says why the job in question may not use it."""

    label: str
    barred: str | None = None
    drained: str | None = None
    closed: str | None = None
    waits_for: str | None = None
    occupant: Occupant | None = None
    kept_for: int | None = None
    kept_needs: int = 0  # how many GPUs that job needs
    shared: str | None = None  # why the jobs that share it leave no room
    sharers: tuple[int, ...] = ()  # the jobs that share it


class SlotCell(msgspec.Struct, frozen=True, kw_only=True):
    """A slot in the picture of why a job waits: what it is in one word and in full, and the job there."""

    label: str
    state: Literal["free", "held", "full", "kept", "drained", "closed", "foreign", "barred"]
    text: str
    job: int | None = None


def waits_for_slots(gpus: int, slots: Sequence[SlotView], where: str = "") -> str:
    """Say which slots a job waits for, slot by slot. `where` is its placement rule in words, if any."""
    what = f"waits for {gpus} GPU{'s' * (gpus != 1)}{where}"
    told = [f"GPU {slot.label} {describe_slot(slot).text}" for slot in slots[:_SHOWN]]
    if len(slots) > _SHOWN:
        told.append(f"and {len(slots) - _SHOWN} more")
    return f"{what}: {', '.join(told)}" if told else what


def describe_slot(slot: SlotView) -> SlotCell:
    """Say what keeps the job in question off a slot."""
    if slot.barred is not None:
        return SlotCell(label=slot.label, state="barred", text=slot.barred)
    if slot.drained is not None:
        return SlotCell(label=slot.label, state="drained", text=slot.drained)
    if slot.closed is not None:
        return SlotCell(label=slot.label, state="closed", text=slot.closed)
    if slot.occupant is not None:
        text, job = f"held by {_describe(slot.occupant)}", slot.occupant.job
        return SlotCell(label=slot.label, state="held", text=text, job=job)
    if slot.shared is not None:
        text, first = f"is shared: {slot.shared}", next(iter(slot.sharers), None)
        return SlotCell(label=slot.label, state="full", text=text, job=first)
    if slot.kept_for is not None:
        needs = f" needs {slot.kept_needs} GPUs and" if slot.kept_needs > 1 else ""
        text = f"kept for job {slot.kept_for}, which{needs} is ahead"
        return SlotCell(label=slot.label, state="kept", text=text, job=slot.kept_for)
    if slot.waits_for is not None:
        return SlotCell(label=slot.label, state="foreign", text=slot.waits_for)
    return SlotCell(label=slot.label, state="free", text="free")


def _describe(occupant: Occupant) -> str:
    facts = [] if occupant.name is None else [occupant.name]
    facts.append(format_duration(occupant.since_s))
    if occupant.paused:
        facts.append("paused")
    if occupant.limit_in_s is not None:
        facts.append(f"time limit in {format_duration(occupant.limit_in_s)}")
    return f"job {occupant.job} ({', '.join(facts)})"
