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
    """Wait until something is so, and return it; fail if it does not come to be in time."""
    deadline = time.monotonic() + deadline_s
    while not (found := fact()):
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what or fact}"
        time.sleep(0.005)
    return found
