"""Run times of a kind of job, learned from the runs that have succeeded."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stoker.core.sharing.estimate import estimate
from stoker.core.sharing.parameters import Params

_REMEMBERED = 32
_SURPRISE = 1.25
_BRIEF_S = 5.0


class RunTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Run times of the last runs of a kind, one for each set of parameters, the newest last."""

    points: tuple[tuple[Params, float], ...] = ()
    learned_at_s: float = 0.0

    @property
    def median_s(self) -> float | None:
        """The median of all run times; None if there is none."""
        return _median([seconds for _params, seconds in self.points])

    def expected_s(self, params: Params) -> float | None:
        """Return the run time for parameters; if the runs do not tell, the median of all runs."""
        found = estimate(self.points, params)
        return self.median_s if found is None else found.value

    def learn(self, params: Params, took_s: float, at_s: float) -> RunTimes:
        """Add a run. Of runs with equal parameters, the mean of the last and the earlier ones counts."""
        before = [seconds for known, seconds in self.points if known == params]
        took_s = (took_s + before[0]) / 2 if before else took_s
        kept = [point for point in self.points if point[0] != params]
        return RunTimes((*kept, (params, took_s))[-_REMEMBERED:], at_s)


def is_surprise(expected_s: float | None, took_s: float) -> bool:
    """Whether a run took so much more or less time than expected that the queue must be sorted again."""
    if expected_s is None:
        return True
    low, high = sorted((expected_s, took_s))
    return high > _BRIEF_S and high > low * _SURPRISE


def usual_s(known: Iterable[RunTimes]) -> float | None:
    """Return the run time that counts for a job of an unknown kind: the median of the known kinds."""
    found = [kind.median_s for kind in known if kind.median_s is not None]
    return _median(found)


def _median(values: list[float]) -> float | None:
    if not values:
        return None
    from statistics import median  # late: few queues are ordered by run times

    return median(values)
