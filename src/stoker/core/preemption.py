"""Choice of the jobs to preempt: as few as possible, the youngest first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Victim(msgspec.Struct, frozen=True):
    """A running job that may be preempted, and the slots it would free."""

    job: int
    slots: tuple[int, ...]
    priority: int
    begun: float


def choose(victims: Sequence[Victim], missing: int, priority: int) -> list[Victim]:
    """Choose the jobs to preempt for `missing` more slots; none if all of them would not be enough.

    Only jobs of the same or a lower priority are chosen: the lowest first, then those that have run for the
    shortest time. A job whose slots turn out not to be needed is not preempted.
    """
    ranked = sorted(
        (victim for victim in victims if victim.slots and victim.priority <= priority),
        key=lambda victim: (victim.priority, -victim.begun),
    )
    chosen: list[Victim] = []
    freed = 0
    for victim in ranked:
        if freed >= missing:
            break
        chosen.append(victim)
        freed += len(victim.slots)
    if freed < missing:
        return []
    for victim in list(chosen):
        if freed - len(victim.slots) >= missing:
            chosen.remove(victim)
            freed -= len(victim.slots)
    return chosen
