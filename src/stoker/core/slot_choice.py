"""Chooses the slots of the jobs that a plan starts, by how their GPUs are joined. Pure.

A job on several GPUs gets those with the best links among the open ones, and a job on one GPU takes the one
that leaves the best sets to others. The choice comes after the plan: it never decides whether a job starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stoker.core.gpu_links import SlotLinks
from stoker.core.planner import Candidate, Plan, Start

_MOST_PLACEMENTS = 1024


def place_by_links(
    made: Plan, waiting: Sequence[Candidate], free: Sequence[int], links: SlotLinks
) -> tuple[Start, ...]:
    """Return the starts of a plan on better slots: the same jobs, on as many of the slots that are free.

    No slot that the plan keeps for a waiting job is used. A job behind one that waits stays where it is,
    because it may have been lent a slot that is kept.
    """
    starts = made.starts
    count = len(starts)
    are_single = count == 1 or max([len(start.slots) for start in starts], default=0) <= 1
    if not count or (count == len(free) and are_single):
        return starts  # every free slot gets a job of its own: there is nothing to choose
    if made.reserved_for is not None or _is_special(starts, waiting):
        return _place(made, waiting, free, links)
    # The same free slots and sizes come again and again: such a choice is made once.
    question = (*free, *[start.slots for start in starts])
    chosen = links.placements.get(question)
    if chosen is None:
        if len(links.placements) >= _MOST_PLACEMENTS:
            links.placements.clear()
        placed = _place(made, waiting, free, links)
        chosen = links.placements[question] = tuple([start.slots for start in placed])
    if count == 1:
        return starts if starts[0].slots == chosen[0] else (Start(starts[0].job, chosen[0]),)
    return tuple([Start(start.job, slots) for start, slots in zip(starts, chosen, strict=True)])


def _is_special(starts: Sequence[Start], waiting: Sequence[Candidate]) -> bool:
    """Whether a choice depends on more than the free slots and the sizes of the jobs."""
    for job in waiting:
        if job.allowed is not None:
            return True
    for start in starts:  # noqa: SIM110 - this is a part of each turn, and `any` takes twice as long
        if start.in_advance:
            return True
    return False


def _place(
    made: Plan, waiting: Sequence[Candidate], free: Sequence[int], links: SlotLinks
) -> tuple[Start, ...]:
    jobs = {job.id: job for job in waiting}
    waits = None if made.reserved_for is None else jobs[made.reserved_for].order
    moving = [
        start
        for start in made.starts
        if start.slots
        and not start.in_advance
        and links.slots.issuperset(start.slots)
        and (waits is None or jobs[start.job].order < waits)
    ]
    if not moving:
        return made.starts
    used = {slot for start in made.starts if not start.in_advance for slot in start.slots}
    freed = {slot for start in moving if jobs[start.job].allowed is None for slot in start.slots}
    pool = [
        slot
        for slot in free
        if slot in links.slots and slot not in made.reserved and (slot in freed or slot not in used)
    ]
    found: dict[int, tuple[int, ...]] = {}
    # The largest first. Then those that may not use every slot: they keep their own if there are no better.
    for start in sorted(
        moving, key=lambda each: (jobs[each.job].allowed is not None, -len(each.slots))
    ):
        allowed = jobs[start.job].allowed
        node = links.nodes[start.slots[0]]
        mine = [slot for slot in pool if links.nodes[slot] == node]
        if allowed is not None:
            mine = [*start.slots, *(slot for slot in mine if slot in allowed)]
        found[start.job] = links.choose(mine, len(start.slots))
        pool = [slot for slot in pool if slot not in found[start.job]]
    return tuple(
        msgspec.structs.replace(start, slots=found.get(start.job, start.slots))
        for start in made.starts
    )
