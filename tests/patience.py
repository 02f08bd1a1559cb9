"""How long tests wait for facts: as long as a busy machine may need; it costs nothing when they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Less than pytest's own timeout, so that it is the missing fact that is told.
PATIENCE_S = 60.0
# Less than the five seconds that leftovers get: what ends within this has not been given any grace.
AT_ONCE_S = 4.0


def until(fact: Callable[[], T], what: str = "", deadline_s: float = PATIENCE_S) -> T:
    """Wait until something is so, and return it; fail if it does not come to be in time.

    Each look costs processor time: the pause between two is a tenth of the wait so far, 50 ms at most.
    """
    begun = time.monotonic()
    while not (found := fact()):
        waited_s = time.monotonic() - begun
        assert waited_s < deadline_s, f"not within {deadline_s} s: {what or fact}"
        time.sleep(min(max(waited_s / 10, 0.005), 0.05))
    return found
