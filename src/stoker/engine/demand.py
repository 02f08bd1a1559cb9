"""What waits, as the planner wants to see it."""

from __future__ import annotations

from stoker.core.plan import Candidate
from stoker.engine.queue import Entry


def slots_used_by(entries: list[Entry], most: int, enough: int) -> int:
    """How many slots what waits could use, counted until they are more than enough."""
    used = 0
    for entry in entries:
        if entry.request.slots <= most:
            used += entry.request.slots
            if used > enough:
                break
    return used


def candidates_of(entries: list[Entry], most: int) -> list[Candidate]:
    """What may be planned: all but those that need more slots than could ever be free as things are."""
    # Entries stand in queue order, so their position is all the planner needs to know.
    return [
        Candidate(position, entry.request.slots, 0, 0, entry.request.timeout_s, entry.allowed)
        for position, entry in enumerate(entries)
        if entry.request.slots <= most
    ]
