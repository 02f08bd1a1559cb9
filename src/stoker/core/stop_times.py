"""How long preempted jobs of a kind take to end, and the grace that follows from it.

A job that saves a large checkpoint needs more than the usual grace, and its user seldom knows how much. A
long grace costs time only where a job does not end by itself.
"""

from __future__ import annotations

import msgspec

FIRST_GRACE_S = 60.0  # of a kind of which nothing is known
MOST_GRACE_S = 240.0
_MARGIN = 3.0
_REMEMBERED = 8


class StopTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last preemptions of a kind have shown.

    `ended_s` are the times that jobs took to end by themselves, the newest last. `killed_s` is the longest
    grace since then that was too short; 0 if none was.
    """

    ended_s: tuple[float, ...] = ()
    killed_s: float = 0.0

    def grace_s(self, usual_s: float) -> float:
        """Return the grace for the next preemption.

        It is three times what jobs took lately. After a kill it is twice as long as before. Jobs that never
        ended within the longest grace do not listen to the signal: they get the usual grace.
        """
        if self.killed_s >= MOST_GRACE_S and not self.ended_s:
            return usual_s
        grace_s = FIRST_GRACE_S
        if self.ended_s:
            grace_s = max(self.ended_s) * _MARGIN
        return min(max(grace_s, self.killed_s * 2, usual_s), MOST_GRACE_S)

    def learn(self, took_s: float, *, killed: bool) -> StopTimes:
        """Add a preemption: how long the job took to end, or how long the grace was that was too short."""
        if killed:
            return StopTimes(self.ended_s, max(self.killed_s, took_s))
        return StopTimes((*self.ended_s, took_s)[-_REMEMBERED:])
