"""Ranks of waiting jobs: by age, or by expected run time with ageing.

Within one priority, jobs start in the order of their ranks. Ageing is linear in time, so the order of
two jobs never depends on the present time: a rank is computed once and stored.
"""

from __future__ import annotations

FIFO, SHORTEST = "fifo", "shortest"
"""The orders of a queue, as the setting `order` names them."""
PASSED_FOR_S = 7 * 86400.0
"""Ageing bound: no job that was added so much later than another one of its priority comes before it."""
_HALF_S = 2 * 3600.0  # run time with half of the longest handicap
_LONGEST_S = (
    365 * 86400.0
)  # longer run times count like this, so that handicaps stay below the bound
_TICKS_PER_S = 16
_TICK_BITS = 26
_GAP_BITS = 8  # room for jobs that are moved between two others
_MOST_OFFSET = (1 << (_TICK_BITS - _GAP_BITS)) - 1


def handicap_s(expected_s: float) -> float:
    """Return for how long shorter jobs that are added later may pass a job with this run time.

    It rises with the run time: a day's run has more patience than a test of two minutes.
    """
    known_s = min(max(expected_s, 0.0), _LONGEST_S)
    return PASSED_FOR_S * known_s / (known_s + _HALF_S)


def shortest_first_rank(added_at_us: int, offset: int, expected_s: float) -> int:
    """Return the rank of a job by its expected run time minus its age.

    `offset` is its position in its submission: equal jobs keep their order.
    """
    ticks = int((added_at_us / 1e6 + handicap_s(expected_s)) * _TICKS_PER_S)
    return (ticks << _TICK_BITS) + (min(offset, _MOST_OFFSET) << _GAP_BITS)
